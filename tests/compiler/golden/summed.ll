; plan golden  2 kernels, arena 64 bytes
;     0 for [6]: t1@[1] = sum[33] x@[33, 1]  [one thread]
;     1 for [6]: y@[1] = t1@[1]  [one thread]  | all wait
define void @kernel(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot11 = getelementptr inbounds ptr, ptr %args, i64 0
  %base12 = load ptr, ptr %slot11, align 8
  %slot39 = getelementptr inbounds ptr, ptr %args, i64 1
  %base40 = load ptr, ptr %slot39, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v42, %after6 ]
  br label %head5
head5:
  %i7 = phi i64 [ 0, %head1 ], [ %v17, %head5 ]
  %c8 = phi <16 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %head1 ], [ %v16, %head5 ]
  %v9 = mul nsw i64 %i4, 33
  %v10 = add nsw i64 %v9, %i7
  %v13 = getelementptr inbounds float, ptr %base12, i64 %v10
  %v14 = load <16 x float>, ptr %v13, align 4
  %v15 = fpext <16 x float> %v14 to <16 x double>
  %v16 = fadd <16 x double> %c8, %v15
  %v17 = add nsw i64 %i7, 16
  %v18 = icmp slt i64 %v17, 32
  br i1 %v18, label %head5, label %after6
after6:
  %v19 = shufflevector <16 x double> %v16, <16 x double> %v16, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v20 = shufflevector <16 x double> %v16, <16 x double> %v16, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v21 = fadd <8 x double> %v19, %v20
  %v22 = shufflevector <8 x double> %v21, <8 x double> %v21, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v23 = shufflevector <8 x double> %v21, <8 x double> %v21, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v24 = fadd <4 x double> %v22, %v23
  %v25 = shufflevector <4 x double> %v24, <4 x double> %v24, <2 x i32> <i32 0, i32 1>
  %v26 = shufflevector <4 x double> %v24, <4 x double> %v24, <2 x i32> <i32 2, i32 3>
  %v27 = fadd <2 x double> %v25, %v26
  %v28 = extractelement <2 x double> %v27, i64 0
  %v29 = extractelement <2 x double> %v27, i64 1
  %v30 = fadd double %v28, %v29
  %v31 = mul nsw i64 %i4, 33
  %v32 = add nsw i64 %v31, 32
  %v33 = getelementptr inbounds float, ptr %base12, i64 %v32
  %v34 = load float, ptr %v33, align 4
  %v35 = fpext float %v34 to double
  %v36 = fadd double 0x0000000000000000, %v35
  %v37 = fadd double %v30, %v36
  %v38 = fptrunc double %v37 to float
  %v41 = getelementptr inbounds float, ptr %base40, i64 %i4
  store float %v38, ptr %v41, align 4
  %v42 = add nsw i64 %i4, 1
  %v43 = icmp slt i64 %v42, %hi
  br i1 %v43, label %head1, label %after2
after2:
  ret void
}

define void @kernel(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot8 = getelementptr inbounds ptr, ptr %args, i64 0
  %base9 = load ptr, ptr %slot8, align 8
  %slot12 = getelementptr inbounds ptr, ptr %args, i64 1
  %base13 = load ptr, ptr %slot12, align 8
  %v1 = sub nsw i64 %hi, %lo
  %v2 = and i64 %v1, -16
  %v3 = add nsw i64 %lo, %v2
  %v6 = icmp slt i64 %lo, %v3
  br i1 %v6, label %head4, label %after5
head4:
  %i7 = phi i64 [ %lo, %entry ], [ %v15, %head4 ]
  %v10 = getelementptr inbounds float, ptr %base9, i64 %i7
  %v11 = load <16 x float>, ptr %v10, align 4
  %v14 = getelementptr inbounds float, ptr %base13, i64 %i7
  store <16 x float> %v11, ptr %v14, align 4
  %v15 = add nsw i64 %i7, 16
  %v16 = icmp slt i64 %v15, %v3
  br i1 %v16, label %head4, label %after5
after5:
  %v19 = icmp slt i64 %v3, %hi
  br i1 %v19, label %head17, label %after18
head17:
  %i20 = phi i64 [ %v3, %after5 ], [ %v24, %head17 ]
  %v21 = getelementptr inbounds float, ptr %base9, i64 %i20
  %v22 = load float, ptr %v21, align 4
  %v23 = getelementptr inbounds float, ptr %base13, i64 %i20
  store float %v22, ptr %v23, align 4
  %v24 = add nsw i64 %i20, 1
  %v25 = icmp slt i64 %v24, %hi
  br i1 %v25, label %head17, label %after18
after18:
  ret void
}

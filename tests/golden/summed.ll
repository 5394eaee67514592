; plan golden  2 kernels, arena 64 bytes
;     0 for [6]: t1@[1] = sum[33] x@[33, 1]  [one thread]
;     1 for [6]: y@[1] = t1@[1]  [one thread]  | all wait
define void @kernel(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot11 = getelementptr inbounds ptr, ptr %args, i64 0
  %base12 = load ptr, ptr %slot11, align 8
  %slot58 = getelementptr inbounds ptr, ptr %args, i64 1
  %base59 = load ptr, ptr %slot58, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v61, %after6 ]
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
  %v19 = mul nsw i64 %i4, 33
  %v20 = add nsw i64 %v19, 32
  %v21 = getelementptr inbounds float, ptr %base12, i64 %v20
  %v22 = load float, ptr %v21, align 4
  %v23 = fpext float %v22 to double
  %v24 = fadd double 0x0000000000000000, %v23
  %v25 = extractelement <16 x double> %v16, i64 0
  %v26 = extractelement <16 x double> %v16, i64 1
  %v27 = extractelement <16 x double> %v16, i64 2
  %v28 = extractelement <16 x double> %v16, i64 3
  %v29 = extractelement <16 x double> %v16, i64 4
  %v30 = extractelement <16 x double> %v16, i64 5
  %v31 = extractelement <16 x double> %v16, i64 6
  %v32 = extractelement <16 x double> %v16, i64 7
  %v33 = extractelement <16 x double> %v16, i64 8
  %v34 = extractelement <16 x double> %v16, i64 9
  %v35 = extractelement <16 x double> %v16, i64 10
  %v36 = extractelement <16 x double> %v16, i64 11
  %v37 = extractelement <16 x double> %v16, i64 12
  %v38 = extractelement <16 x double> %v16, i64 13
  %v39 = extractelement <16 x double> %v16, i64 14
  %v40 = extractelement <16 x double> %v16, i64 15
  %v41 = fadd double %v25, %v33
  %v42 = fadd double %v26, %v34
  %v43 = fadd double %v27, %v35
  %v44 = fadd double %v28, %v36
  %v45 = fadd double %v29, %v37
  %v46 = fadd double %v30, %v38
  %v47 = fadd double %v31, %v39
  %v48 = fadd double %v32, %v40
  %v49 = fadd double %v41, %v45
  %v50 = fadd double %v42, %v46
  %v51 = fadd double %v43, %v47
  %v52 = fadd double %v44, %v48
  %v53 = fadd double %v49, %v51
  %v54 = fadd double %v50, %v52
  %v55 = fadd double %v53, %v54
  %v56 = fadd double %v55, %v24
  %v57 = fptrunc double %v56 to float
  %v60 = getelementptr inbounds float, ptr %base59, i64 %i4
  store float %v57, ptr %v60, align 4
  %v61 = add nsw i64 %i4, 1
  %v62 = icmp slt i64 %v61, %hi
  br i1 %v62, label %head1, label %after2
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

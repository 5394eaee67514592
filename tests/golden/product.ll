; plan golden  2 kernels, arena 64 bytes
;     0 matmul for batch 1, rows 3, columns 5, inner 4: t1:float32[3, 5] = a:float32[3, 4] · b:float32[4, 5]  [one thread]
;     1 for [15]: y@[1] = t1@[1]  [one thread]  | all wait
define void @kernel(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot13 = getelementptr inbounds ptr, ptr %args, i64 0
  %base14 = load ptr, ptr %slot13, align 8
  %slot15 = getelementptr inbounds ptr, ptr %args, i64 1
  %base16 = load ptr, ptr %slot15, align 8
  %slot44 = getelementptr inbounds ptr, ptr %args, i64 2
  %base45 = load ptr, ptr %slot44, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v51, %no12 ]
  %v5 = sdiv i64 %i4, 1
  %v6 = srem i64 %i4, 1
  %v7 = mul nsw i64 %v6, 16
  %v8 = icmp sge i64 %v6, 0
  %v9 = icmp slt i64 %v6, 1
  %v10 = and i1 %v8, %v9
  br i1 %v10, label %yes11, label %no12
yes11:
  %v17 = getelementptr inbounds float, ptr %base16, i64 %v7
  br label %head18
head18:
  %i20 = phi i64 [ 0, %yes11 ], [ %v42, %head18 ]
  %c21 = phi <5 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes11 ], [ %v31, %head18 ]
  %c22 = phi <5 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes11 ], [ %v36, %head18 ]
  %c23 = phi <5 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes11 ], [ %v41, %head18 ]
  %v24 = getelementptr inbounds float, ptr %base14, i64 %i20
  %v25 = mul nsw i64 %i20, 5
  %v26 = getelementptr inbounds float, ptr %v17, i64 %v25
  %v27 = load <5 x float>, ptr %v26, align 4
  %v28 = load float, ptr %v24, align 4
  %v29 = insertelement <5 x float> poison, float %v28, i64 0
  %v30 = shufflevector <5 x float> %v29, <5 x float> poison, <5 x i32> zeroinitializer
  %v31 = call <5 x float> @llvm.fma.v5f32(<5 x float> %v30, <5 x float> %v27, <5 x float> %c21)
  %v32 = getelementptr inbounds float, ptr %v24, i64 4
  %v33 = load float, ptr %v32, align 4
  %v34 = insertelement <5 x float> poison, float %v33, i64 0
  %v35 = shufflevector <5 x float> %v34, <5 x float> poison, <5 x i32> zeroinitializer
  %v36 = call <5 x float> @llvm.fma.v5f32(<5 x float> %v35, <5 x float> %v27, <5 x float> %c22)
  %v37 = getelementptr inbounds float, ptr %v24, i64 8
  %v38 = load float, ptr %v37, align 4
  %v39 = insertelement <5 x float> poison, float %v38, i64 0
  %v40 = shufflevector <5 x float> %v39, <5 x float> poison, <5 x i32> zeroinitializer
  %v41 = call <5 x float> @llvm.fma.v5f32(<5 x float> %v40, <5 x float> %v27, <5 x float> %c23)
  %v42 = add nsw i64 %i20, 1
  %v43 = icmp slt i64 %v42, 4
  br i1 %v43, label %head18, label %after19
after19:
  %v46 = getelementptr inbounds float, ptr %base45, i64 %v7
  store <5 x float> %v31, ptr %v46, align 4
  %v47 = add nsw i64 %v7, 5
  %v48 = getelementptr inbounds float, ptr %base45, i64 %v47
  store <5 x float> %v36, ptr %v48, align 4
  %v49 = add nsw i64 %v7, 10
  %v50 = getelementptr inbounds float, ptr %base45, i64 %v49
  store <5 x float> %v41, ptr %v50, align 4
  br label %no12
no12:
  %v51 = add nsw i64 %i4, 1
  %v52 = icmp slt i64 %v51, %hi
  br i1 %v52, label %head1, label %after2
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

; plan golden  2 kernels, arena 64 bytes
;     0 matmul for batch 1, rows 3, columns 5, inner 4: t1:float32[3, 5] = a:float32[3, 4] · b:float32[4, 5]  [one thread]
;     1 for [15]: y@[1] = t1@[1]  [one thread]  | all wait
define void @kernel(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot15 = getelementptr inbounds ptr, ptr %args, i64 0
  %base16 = load ptr, ptr %slot15, align 8
  %slot18 = getelementptr inbounds ptr, ptr %args, i64 1
  %base19 = load ptr, ptr %slot18, align 8
  %slot48 = getelementptr inbounds ptr, ptr %args, i64 2
  %base49 = load ptr, ptr %slot48, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v55, %no14 ]
  %v5 = sdiv i64 %i4, 1
  %v6 = srem i64 %i4, 1
  %v7 = mul nsw i64 %v5, 12
  %v8 = mul nsw i64 %v5, 15
  %v9 = mul nsw i64 %v6, 16
  %v10 = icmp sge i64 %v6, 0
  %v11 = icmp slt i64 %v6, 1
  %v12 = and i1 %v10, %v11
  br i1 %v12, label %yes13, label %no14
yes13:
  %v17 = getelementptr inbounds float, ptr %base16, i64 %v7
  %v20 = getelementptr inbounds float, ptr %base19, i64 %v9
  br label %head21
head21:
  %i23 = phi i64 [ 0, %yes13 ], [ %v45, %head21 ]
  %c24 = phi <5 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes13 ], [ %v34, %head21 ]
  %c25 = phi <5 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes13 ], [ %v39, %head21 ]
  %c26 = phi <5 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes13 ], [ %v44, %head21 ]
  %v27 = getelementptr inbounds float, ptr %v17, i64 %i23
  %v28 = mul nsw i64 %i23, 5
  %v29 = getelementptr inbounds float, ptr %v20, i64 %v28
  %v30 = load <5 x float>, ptr %v29, align 4
  %v31 = load float, ptr %v27, align 4
  %v32 = insertelement <5 x float> poison, float %v31, i64 0
  %v33 = shufflevector <5 x float> %v32, <5 x float> poison, <5 x i32> zeroinitializer
  %v34 = call <5 x float> @llvm.fma.v5f32(<5 x float> %v33, <5 x float> %v30, <5 x float> %c24)
  %v35 = getelementptr inbounds float, ptr %v27, i64 4
  %v36 = load float, ptr %v35, align 4
  %v37 = insertelement <5 x float> poison, float %v36, i64 0
  %v38 = shufflevector <5 x float> %v37, <5 x float> poison, <5 x i32> zeroinitializer
  %v39 = call <5 x float> @llvm.fma.v5f32(<5 x float> %v38, <5 x float> %v30, <5 x float> %c25)
  %v40 = getelementptr inbounds float, ptr %v27, i64 8
  %v41 = load float, ptr %v40, align 4
  %v42 = insertelement <5 x float> poison, float %v41, i64 0
  %v43 = shufflevector <5 x float> %v42, <5 x float> poison, <5 x i32> zeroinitializer
  %v44 = call <5 x float> @llvm.fma.v5f32(<5 x float> %v43, <5 x float> %v30, <5 x float> %c26)
  %v45 = add nsw i64 %i23, 1
  %v46 = icmp slt i64 %v45, 4
  br i1 %v46, label %head21, label %after22
after22:
  %v47 = add nsw i64 %v8, %v9
  %v50 = getelementptr inbounds float, ptr %base49, i64 %v47
  store <5 x float> %v34, ptr %v50, align 4
  %v51 = add nsw i64 %v47, 5
  %v52 = getelementptr inbounds float, ptr %base49, i64 %v51
  store <5 x float> %v39, ptr %v52, align 4
  %v53 = add nsw i64 %v47, 10
  %v54 = getelementptr inbounds float, ptr %base49, i64 %v53
  store <5 x float> %v44, ptr %v54, align 4
  br label %no14
no14:
  %v55 = add nsw i64 %i4, 1
  %v56 = icmp slt i64 %v55, %hi
  br i1 %v56, label %head1, label %after2
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

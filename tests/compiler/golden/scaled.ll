; plan golden  1 kernels, arena 0 bytes
;     0 for [100]: y@[1] = maximum(x@[1], negative(x@[1]))  [one thread]  | all wait
define void @kernel(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot8 = getelementptr inbounds ptr, ptr %args, i64 0
  %base9 = load ptr, ptr %slot8, align 8
  %slot17 = getelementptr inbounds ptr, ptr %args, i64 1
  %base18 = load ptr, ptr %slot17, align 8
  %v1 = sub nsw i64 %hi, %lo
  %v2 = and i64 %v1, -16
  %v3 = add nsw i64 %lo, %v2
  %v6 = icmp slt i64 %lo, %v3
  br i1 %v6, label %head4, label %after5
head4:
  %i7 = phi i64 [ %lo, %entry ], [ %v20, %head4 ]
  %v10 = getelementptr inbounds float, ptr %base9, i64 %i7
  %v11 = load <16 x float>, ptr %v10, align 4
  %v12 = fneg <16 x float> %v11
  %v13 = fcmp ogt <16 x float> %v11, %v12
  %v14 = select <16 x i1> %v13, <16 x float> %v11, <16 x float> %v12
  %v15 = fcmp ord <16 x float> %v11, %v11
  %v16 = select <16 x i1> %v15, <16 x float> %v14, <16 x float> %v11
  %v19 = getelementptr inbounds float, ptr %base18, i64 %i7
  store <16 x float> %v16, ptr %v19, align 4
  %v20 = add nsw i64 %i7, 16
  %v21 = icmp slt i64 %v20, %v3
  br i1 %v21, label %head4, label %after5
after5:
  %v24 = icmp slt i64 %v3, %hi
  br i1 %v24, label %head22, label %after23
head22:
  %i25 = phi i64 [ %v3, %after5 ], [ %v34, %head22 ]
  %v26 = getelementptr inbounds float, ptr %base9, i64 %i25
  %v27 = load float, ptr %v26, align 4
  %v28 = fneg float %v27
  %v29 = fcmp ogt float %v27, %v28
  %v30 = select i1 %v29, float %v27, float %v28
  %v31 = fcmp ord float %v27, %v27
  %v32 = select i1 %v31, float %v30, float %v27
  %v33 = getelementptr inbounds float, ptr %base18, i64 %i25
  store float %v32, ptr %v33, align 4
  %v34 = add nsw i64 %i25, 1
  %v35 = icmp slt i64 %v34, %hi
  br i1 %v35, label %head22, label %after23
after23:
  ret void
}

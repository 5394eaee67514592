; plan golden  1 kernels, arena 0 bytes
;     0 for [100]: y@[1] = maximum(x@[1], negative(x@[1]))  [one thread]  | all wait
; [100]
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32, <16 x i1>)
define void @kcab239e6b2e2bd5ac15ca155(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot8 = getelementptr inbounds ptr, ptr %args, i64 0
  %base9 = load ptr, ptr %slot8, align 8
  %slot17 = getelementptr inbounds ptr, ptr %args, i64 1
  %base18 = load ptr, ptr %slot17, align 8
  %p0.at = getelementptr inbounds i64, ptr %args, i64 2
  %p0 = load i64, ptr %p0.at, align 8
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
  %v22 = sub nsw i64 %hi, %v3
  %v23 = icmp sgt i64 %v22, 0
  br i1 %v23, label %yes24, label %no25
yes24:
  %v26 = trunc i64 %v22 to i32
  %v27 = insertelement <16 x i32> poison, i32 %v26, i64 0
  %v28 = shufflevector <16 x i32> %v27, <16 x i32> poison, <16 x i32> zeroinitializer
  %v29 = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v28
  %v30 = getelementptr inbounds float, ptr %base9, i64 %v3
  %v31 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v30, i32 4, <16 x i1> %v29, <16 x float> zeroinitializer)
  %v32 = fneg <16 x float> %v31
  %v33 = fcmp ogt <16 x float> %v31, %v32
  %v34 = select <16 x i1> %v33, <16 x float> %v31, <16 x float> %v32
  %v35 = fcmp ord <16 x float> %v31, %v31
  %v36 = select <16 x i1> %v35, <16 x float> %v34, <16 x float> %v31
  %v37 = getelementptr inbounds float, ptr %base18, i64 %v3
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v36, ptr %v37, i32 4, <16 x i1> %v29)
  br label %no25
no25:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

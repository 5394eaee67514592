; plan golden  1 kernels, arena 0 bytes
;     0 for [4, 3]: y@[3, 1] = cast(x@[1, 4])  [one thread]  | all wait
; [4, 4, 3]
define void @k2409bd5b219cc4e75561c6f3(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot5 = getelementptr inbounds ptr, ptr %args, i64 0
  %base6 = load ptr, ptr %slot5, align 8
  %slot21 = getelementptr inbounds ptr, ptr %args, i64 1
  %base22 = load ptr, ptr %slot21, align 8
  %p0.at = getelementptr inbounds i64, ptr %args, i64 2
  %p0 = load i64, ptr %p0.at, align 8
  %p1.at = getelementptr inbounds i64, ptr %args, i64 3
  %p1 = load i64, ptr %p1.at, align 8
  %p2.at = getelementptr inbounds i64, ptr %args, i64 4
  %p2 = load i64, ptr %p2.at, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v24, %head1 ]
  %v7 = getelementptr inbounds i8, ptr %base6, i64 %i4
  %v8 = load i8, ptr %v7, align 1
  %v9 = add nsw i64 %i4, %p1
  %v10 = getelementptr inbounds i8, ptr %base6, i64 %v9
  %v11 = load i8, ptr %v10, align 1
  %v12 = mul nsw i64 2, %p1
  %v13 = add nsw i64 %i4, %v12
  %v14 = getelementptr inbounds i8, ptr %base6, i64 %v13
  %v15 = load i8, ptr %v14, align 1
  %v16 = insertelement <3 x i8> poison, i8 %v8, i64 0
  %v17 = insertelement <3 x i8> %v16, i8 %v11, i64 1
  %v18 = insertelement <3 x i8> %v17, i8 %v15, i64 2
  %v19 = uitofp <3 x i8> %v18 to <3 x float>
  %v20 = mul nsw i64 %i4, %p2
  %v23 = getelementptr inbounds float, ptr %base22, i64 %v20
  store <3 x float> %v19, ptr %v23, align 4
  %v24 = add nsw i64 %i4, 1
  %v25 = icmp slt i64 %v24, %hi
  br i1 %v25, label %head1, label %after2
after2:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

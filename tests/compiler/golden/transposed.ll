; plan golden  1 kernels, arena 0 bytes
;     0 for [4, 3]: y@[3, 1] = cast(x@[1, 4])  [one thread]  | all wait
define void @kernel(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot5 = getelementptr inbounds ptr, ptr %args, i64 0
  %base6 = load ptr, ptr %slot5, align 8
  %slot20 = getelementptr inbounds ptr, ptr %args, i64 1
  %base21 = load ptr, ptr %slot20, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v23, %head1 ]
  %v7 = getelementptr inbounds i8, ptr %base6, i64 %i4
  %v8 = load i8, ptr %v7, align 1
  %v9 = add nsw i64 %i4, 4
  %v10 = getelementptr inbounds i8, ptr %base6, i64 %v9
  %v11 = load i8, ptr %v10, align 1
  %v12 = add nsw i64 %i4, 8
  %v13 = getelementptr inbounds i8, ptr %base6, i64 %v12
  %v14 = load i8, ptr %v13, align 1
  %v15 = insertelement <3 x i8> poison, i8 %v8, i64 0
  %v16 = insertelement <3 x i8> %v15, i8 %v11, i64 1
  %v17 = insertelement <3 x i8> %v16, i8 %v14, i64 2
  %v18 = uitofp <3 x i8> %v17 to <3 x float>
  %v19 = mul nsw i64 %i4, 3
  %v22 = getelementptr inbounds float, ptr %base21, i64 %v19
  store <3 x float> %v18, ptr %v22, align 4
  %v23 = add nsw i64 %i4, 1
  %v24 = icmp slt i64 %v23, %hi
  br i1 %v24, label %head1, label %after2
after2:
  ret void
}

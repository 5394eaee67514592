; plan golden  2 kernels, arena 64 bytes
;     0 for [6]: t1@[1] = sum[33] x@[33, 1]  [one thread]
;     1 for [6]: y@[1] = t1@[1]  [one thread]  | all wait
; [33, 33]
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
define void @kd6ea71d8209649a4ab0294d9(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot14 = getelementptr inbounds ptr, ptr %args, i64 0
  %base15 = load ptr, ptr %slot14, align 8
  %slot88 = getelementptr inbounds ptr, ptr %args, i64 1
  %base89 = load ptr, ptr %slot88, align 8
  %p0.at = getelementptr inbounds i64, ptr %args, i64 2
  %p0 = load i64, ptr %p0.at, align 8
  %p1.at = getelementptr inbounds i64, ptr %args, i64 3
  %p1 = load i64, ptr %p1.at, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v91, %after39 ]
  %v5 = and i64 %p0, -16
  %v6 = and i64 %p0, 15
  %v9 = icmp slt i64 0, %v5
  br i1 %v9, label %head7, label %after8
head7:
  %i10 = phi i64 [ 0, %head1 ], [ %v20, %head7 ]
  %c11 = phi <16 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %head1 ], [ %v19, %head7 ]
  %v12 = mul nsw i64 %i4, %p1
  %v13 = add nsw i64 %v12, %i10
  %v16 = getelementptr inbounds float, ptr %base15, i64 %v13
  %v17 = load <16 x float>, ptr %v16, align 4
  %v18 = fpext <16 x float> %v17 to <16 x double>
  %v19 = fadd <16 x double> %c11, %v18
  %v20 = add nsw i64 %i10, 16
  %v21 = icmp slt i64 %v20, %v5
  br i1 %v21, label %head7, label %after8
after8:
  %v22 = phi <16 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %head1 ], [ %v19, %head7 ]
  %v23 = shufflevector <16 x double> %v22, <16 x double> %v22, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v24 = shufflevector <16 x double> %v22, <16 x double> %v22, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v25 = fadd <8 x double> %v23, %v24
  %v26 = shufflevector <8 x double> %v25, <8 x double> %v25, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v27 = shufflevector <8 x double> %v25, <8 x double> %v25, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v28 = fadd <4 x double> %v26, %v27
  %v29 = shufflevector <4 x double> %v28, <4 x double> %v28, <2 x i32> <i32 0, i32 1>
  %v30 = shufflevector <4 x double> %v28, <4 x double> %v28, <2 x i32> <i32 2, i32 3>
  %v31 = fadd <2 x double> %v29, %v30
  %v32 = extractelement <2 x double> %v31, i64 0
  %v33 = extractelement <2 x double> %v31, i64 1
  %v34 = fadd double %v32, %v33
  %v35 = icmp ne i64 %v6, 0
  %v36 = zext i1 %v35 to i64
  %v37 = icmp eq i64 %v5, 0
  %v40 = icmp slt i64 0, %v36
  br i1 %v40, label %head38, label %after39
head38:
  %i41 = phi i64 [ 0, %after8 ], [ %v84, %after48 ]
  %c42 = phi double [ %v34, %after8 ], [ %v83, %after48 ]
  %v43 = trunc i64 %v6 to i32
  %v44 = insertelement <16 x i32> poison, i32 %v43, i64 0
  %v45 = shufflevector <16 x i32> %v44, <16 x i32> poison, <16 x i32> zeroinitializer
  %v46 = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v45
  %v49 = icmp slt i64 %v5, %p0
  br i1 %v49, label %head47, label %after48
head47:
  %i50 = phi i64 [ %v5, %head38 ], [ %v58, %head47 ]
  %c51 = phi <16 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %head38 ], [ %v57, %head47 ]
  %v52 = mul nsw i64 %i4, %p1
  %v53 = add nsw i64 %v52, %i50
  %v54 = getelementptr inbounds float, ptr %base15, i64 %v53
  %v55 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v54, i32 4, <16 x i1> %v46, <16 x float> zeroinitializer)
  %v56 = fpext <16 x float> %v55 to <16 x double>
  %v57 = fadd <16 x double> %c51, %v56
  %v58 = add nsw i64 %i50, 16
  %v59 = icmp slt i64 %v58, %p0
  br i1 %v59, label %head47, label %after48
after48:
  %v60 = phi <16 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %head38 ], [ %v57, %head47 ]
  %v61 = select <16 x i1> %v46, <16 x double> %v60, <16 x double> <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>
  %v62 = shufflevector <16 x double> %v61, <16 x double> %v61, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v63 = shufflevector <16 x double> %v61, <16 x double> %v61, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v64 = fadd <8 x double> %v62, %v63
  %v65 = icmp ugt i64 %v6, 8
  %v66 = select i1 %v65, <8 x double> %v64, <8 x double> %v62
  %v67 = shufflevector <8 x double> %v66, <8 x double> %v66, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v68 = shufflevector <8 x double> %v66, <8 x double> %v66, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v69 = fadd <4 x double> %v67, %v68
  %v70 = icmp ugt i64 %v6, 4
  %v71 = select i1 %v70, <4 x double> %v69, <4 x double> %v67
  %v72 = shufflevector <4 x double> %v71, <4 x double> %v71, <2 x i32> <i32 0, i32 1>
  %v73 = shufflevector <4 x double> %v71, <4 x double> %v71, <2 x i32> <i32 2, i32 3>
  %v74 = fadd <2 x double> %v72, %v73
  %v75 = icmp ugt i64 %v6, 2
  %v76 = select i1 %v75, <2 x double> %v74, <2 x double> %v72
  %v77 = extractelement <2 x double> %v76, i64 0
  %v78 = extractelement <2 x double> %v76, i64 1
  %v79 = fadd double %v77, %v78
  %v80 = icmp ugt i64 %v6, 1
  %v81 = select i1 %v80, double %v79, double %v77
  %v82 = fadd double %c42, %v81
  %v83 = select i1 %v37, double %v81, double %v82
  %v84 = add nsw i64 %i41, 1
  %v85 = icmp slt i64 %v84, %v36
  br i1 %v85, label %head38, label %after39
after39:
  %v86 = phi double [ %v34, %after8 ], [ %v83, %after48 ]
  %v87 = fptrunc double %v86 to float
  %v90 = getelementptr inbounds float, ptr %base89, i64 %i4
  store float %v87, ptr %v90, align 4
  %v91 = add nsw i64 %i4, 1
  %v92 = icmp slt i64 %v91, %hi
  br i1 %v92, label %head1, label %after2
after2:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

; [6]
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32, <16 x i1>)
define void @k66475048ebc161b117a9efac(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot8 = getelementptr inbounds ptr, ptr %args, i64 0
  %base9 = load ptr, ptr %slot8, align 8
  %slot12 = getelementptr inbounds ptr, ptr %args, i64 1
  %base13 = load ptr, ptr %slot12, align 8
  %p0.at = getelementptr inbounds i64, ptr %args, i64 2
  %p0 = load i64, ptr %p0.at, align 8
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
  %v17 = sub nsw i64 %hi, %v3
  %v18 = icmp sgt i64 %v17, 0
  br i1 %v18, label %yes19, label %no20
yes19:
  %v21 = trunc i64 %v17 to i32
  %v22 = insertelement <16 x i32> poison, i32 %v21, i64 0
  %v23 = shufflevector <16 x i32> %v22, <16 x i32> poison, <16 x i32> zeroinitializer
  %v24 = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v23
  %v25 = getelementptr inbounds float, ptr %base9, i64 %v3
  %v26 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v25, i32 4, <16 x i1> %v24, <16 x float> zeroinitializer)
  %v27 = getelementptr inbounds float, ptr %base13, i64 %v3
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v26, ptr %v27, i32 4, <16 x i1> %v24)
  br label %no20
no20:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

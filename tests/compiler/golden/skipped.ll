; plan golden  3 kernels, arena 256 bytes
;     0 for 1 groups of 3, inner 17: nonzeros0:int32[1, 1, 48] = where x:float32[3, 17] is not zero  [one thread]
;     1 matmul for batch 1, rows 3, columns 4, inner 17: t1:float32[3, 4] = x:float32[3, 17] · w:float32[17, 4]  at nonzeros0  [one thread]
;     2 for [12]: y@[1] = t1@[1]  [one thread]  | all wait
; []
declare <16 x i32> @llvm.experimental.vector.compress.v16i32(<16 x i32>, <16 x i1>, <16 x i32>)
declare i16 @llvm.ctpop.i16(i16)
define void @k6a20a6e4fe889f244092730e(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot13 = getelementptr inbounds ptr, ptr %args, i64 0
  %base14 = load ptr, ptr %slot13, align 8
  %slot16 = getelementptr inbounds ptr, ptr %args, i64 1
  %base17 = load ptr, ptr %slot16, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v65, %after32 ]
  %v5 = sdiv i64 %i4, 1
  %v6 = srem i64 %i4, 1
  %v7 = srem i64 %v5, 1
  %v8 = sdiv i64 %v5, 1
  %v9 = mul nsw i64 %v7, 51
  %v10 = mul nsw i64 %v6, 3
  %v11 = mul nsw i64 %v10, 17
  %v12 = add nsw i64 %v9, %v11
  %v15 = getelementptr inbounds i32, ptr %base14, i64 %v12
  %v18 = mul nsw i64 %i4, 48
  %v19 = getelementptr inbounds i32, ptr %base17, i64 %v18
  %v20 = getelementptr inbounds i32, ptr %v15, i64 17
  %v21 = getelementptr inbounds i32, ptr %v15, i64 34
  %v22 = load <16 x i32>, ptr %v15, align 4
  %v23 = load <16 x i32>, ptr %v20, align 4
  %v24 = or <16 x i32> %v22, %v23
  %v25 = load <16 x i32>, ptr %v21, align 4
  %v26 = or <16 x i32> %v24, %v25
  %v27 = icmp ne <16 x i32> %v26, zeroinitializer
  %v28 = bitcast <16 x i1> %v27 to i16
  %v29 = icmp eq i16 %v28, -1
  br i1 %v29, label %yes30, label %no31
yes30:
  store i32 -1, ptr %v19, align 4
  br label %after32
no31:
  %v33 = getelementptr inbounds i32, ptr %v19, i64 16
  %v34 = getelementptr inbounds i32, ptr %v15, i64 17
  %v35 = getelementptr inbounds i32, ptr %v15, i64 34
  %v36 = load <16 x i32>, ptr %v15, align 4
  %v37 = load <16 x i32>, ptr %v34, align 4
  %v38 = or <16 x i32> %v36, %v37
  %v39 = load <16 x i32>, ptr %v35, align 4
  %v40 = or <16 x i32> %v38, %v39
  %v41 = icmp ne <16 x i32> %v40, zeroinitializer
  %v42 = bitcast <16 x i1> %v41 to i16
  %v43 = insertelement <16 x i64> poison, i64 0, i64 0
  %v44 = shufflevector <16 x i64> %v43, <16 x i64> poison, <16 x i32> zeroinitializer
  %v45 = add <16 x i64> %v44, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>
  %v46 = trunc <16 x i64> %v45 to <16 x i32>
  %v47 = bitcast i16 %v42 to <16 x i1>
  %v48 = call <16 x i32> @llvm.experimental.vector.compress.v16i32(<16 x i32> %v46, <16 x i1> %v47, <16 x i32> poison)
  store <16 x i32> %v48, ptr %v33, align 4
  %v49 = call i16 @llvm.ctpop.i16(i16 %v42)
  %v50 = zext i16 %v49 to i64
  %v51 = getelementptr inbounds i32, ptr %v33, i64 %v50
  %v52 = trunc i64 16 to i32
  store i32 %v52, ptr %v51, align 4
  %v53 = getelementptr inbounds i32, ptr %v15, i64 16
  %v54 = getelementptr inbounds i32, ptr %v53, i64 17
  %v55 = getelementptr inbounds i32, ptr %v53, i64 34
  %v56 = load i32, ptr %v53, align 4
  %v57 = load i32, ptr %v54, align 4
  %v58 = or i32 %v56, %v57
  %v59 = load i32, ptr %v55, align 4
  %v60 = or i32 %v58, %v59
  %v61 = icmp ne i32 %v60, 0
  %v62 = zext i1 %v61 to i64
  %v63 = add nsw i64 %v50, %v62
  %v64 = trunc i64 %v63 to i32
  store i32 %v64, ptr %v19, align 4
  br label %after32
after32:
  %v65 = add nsw i64 %i4, 1
  %v66 = icmp slt i64 %v65, %hi
  br i1 %v66, label %head1, label %after2
after2:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

; []
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
define void @k06489f7ed55ed3187d7c957b(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot17 = getelementptr inbounds ptr, ptr %args, i64 0
  %base18 = load ptr, ptr %slot17, align 8
  %slot24 = getelementptr inbounds ptr, ptr %args, i64 1
  %base25 = load ptr, ptr %slot24, align 8
  %slot33 = getelementptr inbounds ptr, ptr %args, i64 2
  %base34 = load ptr, ptr %slot33, align 8
  %slot36 = getelementptr inbounds ptr, ptr %args, i64 3
  %base37 = load ptr, ptr %slot36, align 8
  %slot83 = getelementptr inbounds ptr, ptr %args, i64 4
  %base84 = load ptr, ptr %slot83, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v124, %no14 ]
  %v5 = sdiv i64 %i4, 1
  %v6 = srem i64 %i4, 1
  %v7 = mul nsw i64 %v5, 51
  %v8 = mul nsw i64 %v5, 12
  %v9 = mul nsw i64 %v6, 16
  %v10 = icmp sge i64 %v6, 0
  %v11 = icmp slt i64 %v6, 1
  %v12 = and i1 %v10, %v11
  br i1 %v12, label %yes13, label %no14
yes13:
  %v15 = sdiv i64 0, 3
  %v16 = add nsw i64 %v5, %v15
  %v19 = mul nsw i64 %v16, 48
  %v20 = getelementptr inbounds i32, ptr %base18, i64 %v19
  %v21 = load i32, ptr %v20, align 4
  %v22 = icmp slt i32 %v21, 0
  %v23 = getelementptr inbounds i32, ptr %v20, i64 16
  %v26 = select i1 %v22, ptr %base25, ptr %v23
  %v27 = select i1 %v22, i32 17, i32 %v21
  %v28 = zext i32 %v27 to i64
  %v29 = icmp sle i64 %v28, 12
  br i1 %v29, label %yes30, label %no31
yes30:
  %v35 = getelementptr inbounds float, ptr %base34, i64 %v7
  %v38 = getelementptr inbounds float, ptr %base37, i64 %v9
  %v39 = sdiv i64 0, 3
  %v40 = add nsw i64 %v5, %v39
  %v41 = mul nsw i64 %v40, 48
  %v42 = getelementptr inbounds i32, ptr %base18, i64 %v41
  %v43 = load i32, ptr %v42, align 4
  %v44 = icmp slt i32 %v43, 0
  %v45 = getelementptr inbounds i32, ptr %v42, i64 16
  %v46 = select i1 %v44, ptr %base25, ptr %v45
  %v47 = select i1 %v44, i32 17, i32 %v43
  %v48 = zext i32 %v47 to i64
  %v51 = icmp slt i64 0, %v48
  br i1 %v51, label %head49, label %after50
head49:
  %i52 = phi i64 [ 0, %yes30 ], [ %v77, %head49 ]
  %c53 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v66, %head49 ]
  %c54 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v71, %head49 ]
  %c55 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v76, %head49 ]
  %v56 = getelementptr inbounds i32, ptr %v46, i64 %i52
  %v57 = load i32, ptr %v56, align 4
  %v58 = zext i32 %v57 to i64
  %v59 = getelementptr inbounds float, ptr %v35, i64 %v58
  %v60 = mul nsw i64 %v58, 4
  %v61 = getelementptr inbounds float, ptr %v38, i64 %v60
  %v62 = load <4 x float>, ptr %v61, align 4
  %v63 = load float, ptr %v59, align 4
  %v64 = insertelement <4 x float> poison, float %v63, i64 0
  %v65 = shufflevector <4 x float> %v64, <4 x float> poison, <4 x i32> zeroinitializer
  %v66 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v65, <4 x float> %v62, <4 x float> %c53)
  %v67 = getelementptr inbounds float, ptr %v59, i64 17
  %v68 = load float, ptr %v67, align 4
  %v69 = insertelement <4 x float> poison, float %v68, i64 0
  %v70 = shufflevector <4 x float> %v69, <4 x float> poison, <4 x i32> zeroinitializer
  %v71 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v70, <4 x float> %v62, <4 x float> %c54)
  %v72 = getelementptr inbounds float, ptr %v59, i64 34
  %v73 = load float, ptr %v72, align 4
  %v74 = insertelement <4 x float> poison, float %v73, i64 0
  %v75 = shufflevector <4 x float> %v74, <4 x float> poison, <4 x i32> zeroinitializer
  %v76 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v75, <4 x float> %v62, <4 x float> %c55)
  %v77 = add nsw i64 %i52, 1
  %v78 = icmp slt i64 %v77, %v48
  br i1 %v78, label %head49, label %after50
after50:
  %v79 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v66, %head49 ]
  %v80 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v71, %head49 ]
  %v81 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v76, %head49 ]
  %v82 = add nsw i64 %v8, %v9
  %v85 = getelementptr inbounds float, ptr %base84, i64 %v82
  store <4 x float> %v79, ptr %v85, align 4
  %v86 = add nsw i64 %v82, 4
  %v87 = getelementptr inbounds float, ptr %base84, i64 %v86
  store <4 x float> %v80, ptr %v87, align 4
  %v88 = add nsw i64 %v82, 8
  %v89 = getelementptr inbounds float, ptr %base84, i64 %v88
  store <4 x float> %v81, ptr %v89, align 4
  br label %after32
no31:
  %v90 = getelementptr inbounds float, ptr %base34, i64 %v7
  %v91 = getelementptr inbounds float, ptr %base37, i64 %v9
  br label %head92
head92:
  %i94 = phi i64 [ 0, %no31 ], [ %v116, %head92 ]
  %c95 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %no31 ], [ %v105, %head92 ]
  %c96 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %no31 ], [ %v110, %head92 ]
  %c97 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %no31 ], [ %v115, %head92 ]
  %v98 = getelementptr inbounds float, ptr %v90, i64 %i94
  %v99 = mul nsw i64 %i94, 4
  %v100 = getelementptr inbounds float, ptr %v91, i64 %v99
  %v101 = load <4 x float>, ptr %v100, align 4
  %v102 = load float, ptr %v98, align 4
  %v103 = insertelement <4 x float> poison, float %v102, i64 0
  %v104 = shufflevector <4 x float> %v103, <4 x float> poison, <4 x i32> zeroinitializer
  %v105 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v104, <4 x float> %v101, <4 x float> %c95)
  %v106 = getelementptr inbounds float, ptr %v98, i64 17
  %v107 = load float, ptr %v106, align 4
  %v108 = insertelement <4 x float> poison, float %v107, i64 0
  %v109 = shufflevector <4 x float> %v108, <4 x float> poison, <4 x i32> zeroinitializer
  %v110 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v109, <4 x float> %v101, <4 x float> %c96)
  %v111 = getelementptr inbounds float, ptr %v98, i64 34
  %v112 = load float, ptr %v111, align 4
  %v113 = insertelement <4 x float> poison, float %v112, i64 0
  %v114 = shufflevector <4 x float> %v113, <4 x float> poison, <4 x i32> zeroinitializer
  %v115 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v114, <4 x float> %v101, <4 x float> %c97)
  %v116 = add nsw i64 %i94, 1
  %v117 = icmp slt i64 %v116, 17
  br i1 %v117, label %head92, label %after93
after93:
  %v118 = add nsw i64 %v8, %v9
  %v119 = getelementptr inbounds float, ptr %base84, i64 %v118
  store <4 x float> %v105, ptr %v119, align 4
  %v120 = add nsw i64 %v118, 4
  %v121 = getelementptr inbounds float, ptr %base84, i64 %v120
  store <4 x float> %v110, ptr %v121, align 4
  %v122 = add nsw i64 %v118, 8
  %v123 = getelementptr inbounds float, ptr %base84, i64 %v122
  store <4 x float> %v115, ptr %v123, align 4
  br label %after32
after32:
  br label %no14
no14:
  %v124 = add nsw i64 %i4, 1
  %v125 = icmp slt i64 %v124, %hi
  br i1 %v125, label %head1, label %after2
after2:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

; [12]
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

; plan golden  2 kernels, arena 64 bytes
;     0 matmul for batch 1, rows 3, columns 5, inner 4: t1:float32[3, 5] = a:float32[3, 4] · b:float32[4, 5]  [one thread]
;     1 for [15]: y@[1] = t1@[1]  [one thread]  | all wait
; [1, 1, 1, 8, 5, 5, 0, 0, 0, 3, 4, 5, 1, 12, 0, 15, 4, 1, 5]
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32, <16 x i1>)
define void @ke054ff16126d109f374c1406(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot1 = getelementptr inbounds ptr, ptr %args, i64 0
  %base2 = load ptr, ptr %slot1, align 8
  %slot3 = getelementptr inbounds ptr, ptr %args, i64 1
  %base4 = load ptr, ptr %slot3, align 8
  %slot5 = getelementptr inbounds ptr, ptr %args, i64 2
  %base6 = load ptr, ptr %slot5, align 8
  %p0.at = getelementptr inbounds i64, ptr %args, i64 3
  %p0 = load i64, ptr %p0.at, align 8
  %p1.at = getelementptr inbounds i64, ptr %args, i64 4
  %p1 = load i64, ptr %p1.at, align 8
  %p2.at = getelementptr inbounds i64, ptr %args, i64 5
  %p2 = load i64, ptr %p2.at, align 8
  %p3.at = getelementptr inbounds i64, ptr %args, i64 6
  %p3 = load i64, ptr %p3.at, align 8
  %p4.at = getelementptr inbounds i64, ptr %args, i64 7
  %p4 = load i64, ptr %p4.at, align 8
  %p5.at = getelementptr inbounds i64, ptr %args, i64 8
  %p5 = load i64, ptr %p5.at, align 8
  %p6.at = getelementptr inbounds i64, ptr %args, i64 9
  %p6 = load i64, ptr %p6.at, align 8
  %p7.at = getelementptr inbounds i64, ptr %args, i64 10
  %p7 = load i64, ptr %p7.at, align 8
  %p8.at = getelementptr inbounds i64, ptr %args, i64 11
  %p8 = load i64, ptr %p8.at, align 8
  %p9.at = getelementptr inbounds i64, ptr %args, i64 12
  %p9 = load i64, ptr %p9.at, align 8
  %p10.at = getelementptr inbounds i64, ptr %args, i64 13
  %p10 = load i64, ptr %p10.at, align 8
  %p11.at = getelementptr inbounds i64, ptr %args, i64 14
  %p11 = load i64, ptr %p11.at, align 8
  %p12.at = getelementptr inbounds i64, ptr %args, i64 15
  %p12 = load i64, ptr %p12.at, align 8
  %p13.at = getelementptr inbounds i64, ptr %args, i64 16
  %p13 = load i64, ptr %p13.at, align 8
  %p14.at = getelementptr inbounds i64, ptr %args, i64 17
  %p14 = load i64, ptr %p14.at, align 8
  %p15.at = getelementptr inbounds i64, ptr %args, i64 18
  %p15 = load i64, ptr %p15.at, align 8
  %p16.at = getelementptr inbounds i64, ptr %args, i64 19
  %p16 = load i64, ptr %p16.at, align 8
  %p17.at = getelementptr inbounds i64, ptr %args, i64 20
  %p17 = load i64, ptr %p17.at, align 8
  %p18.at = getelementptr inbounds i64, ptr %args, i64 21
  %p18 = load i64, ptr %p18.at, align 8
  %v9 = icmp slt i64 %lo, %hi
  br i1 %v9, label %head7, label %after8
head7:
  %i10 = phi i64 [ %lo, %entry ], [ %v956, %no743 ]
  %v11 = udiv i64 %i10, %p1
  %v12 = urem i64 %i10, %p1
  %v13 = udiv i64 %v11, %p2
  %v14 = urem i64 %v11, %p2
  %v15 = mul nsw i64 %v13, %p13
  %v16 = add nsw i64 %p6, %v15
  %v17 = mul nsw i64 %v13, %p14
  %v18 = add nsw i64 %p7, %v17
  %v19 = mul nsw i64 %v13, %p15
  %v20 = add nsw i64 %p8, %v19
  %v21 = mul nsw i64 %v12, %p3
  %v22 = sub nsw i64 %p9, %v21
  %v23 = icmp slt i64 %v22, %p3
  %v24 = select i1 %v23, i64 %v22, i64 %p3
  %v25 = mul nsw i64 %v14, %p4
  %v26 = sub nsw i64 %p5, %v25
  %v27 = icmp slt i64 %v26, %p4
  %v28 = select i1 %v27, i64 %v26, i64 %p4
  %v29 = getelementptr inbounds float, ptr %base2, i64 %v16
  %v30 = getelementptr inbounds float, ptr %base4, i64 %v18
  %v31 = getelementptr inbounds float, ptr %base6, i64 %v20
  %v32 = and i64 %v24, -8
  %v33 = add nsw i64 %v21, %v32
  %v36 = icmp slt i64 %v21, %v33
  br i1 %v36, label %head34, label %after35
head34:
  %i37 = phi i64 [ %v21, %head7 ], [ %v347, %no267 ]
  %v38 = mul nsw i64 %i37, %p10
  %v39 = getelementptr inbounds float, ptr %v29, i64 %v38
  %v40 = getelementptr inbounds float, ptr %v39, i64 %p10
  %v41 = getelementptr inbounds float, ptr %v40, i64 %p10
  %v42 = getelementptr inbounds float, ptr %v41, i64 %p10
  %v43 = getelementptr inbounds float, ptr %v42, i64 %p10
  %v44 = getelementptr inbounds float, ptr %v43, i64 %p10
  %v45 = getelementptr inbounds float, ptr %v44, i64 %p10
  %v46 = getelementptr inbounds float, ptr %v45, i64 %p10
  %v47 = mul nsw i64 %i37, %p11
  %v48 = getelementptr inbounds float, ptr %v31, i64 %v47
  %v49 = getelementptr inbounds float, ptr %v48, i64 %p11
  %v50 = getelementptr inbounds float, ptr %v49, i64 %p11
  %v51 = getelementptr inbounds float, ptr %v50, i64 %p11
  %v52 = getelementptr inbounds float, ptr %v51, i64 %p11
  %v53 = getelementptr inbounds float, ptr %v52, i64 %p11
  %v54 = getelementptr inbounds float, ptr %v53, i64 %p11
  %v55 = getelementptr inbounds float, ptr %v54, i64 %p11
  %v56 = and i64 %v28, -32
  %v57 = add nsw i64 %v25, %v56
  %v60 = icmp slt i64 %v25, %v57
  br i1 %v60, label %head58, label %after59
head58:
  %i61 = phi i64 [ %v25, %head34 ], [ %v179, %after64 ]
  %v62 = getelementptr inbounds float, ptr %v30, i64 %i61
  %v65 = icmp slt i64 0, %p16
  br i1 %v65, label %head63, label %after64
head63:
  %i66 = phi i64 [ 0, %head58 ], [ %v137, %head63 ]
  %c67 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v100, %head63 ]
  %c68 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v101, %head63 ]
  %c69 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v105, %head63 ]
  %c70 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v106, %head63 ]
  %c71 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v110, %head63 ]
  %c72 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v111, %head63 ]
  %c73 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v115, %head63 ]
  %c74 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v116, %head63 ]
  %c75 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v120, %head63 ]
  %c76 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v121, %head63 ]
  %c77 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v125, %head63 ]
  %c78 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v126, %head63 ]
  %c79 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v130, %head63 ]
  %c80 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v131, %head63 ]
  %c81 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v135, %head63 ]
  %c82 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v136, %head63 ]
  %v83 = mul nsw i64 %i66, %p17
  %v84 = mul nsw i64 %i66, %p18
  %v85 = getelementptr inbounds float, ptr %v62, i64 %v84
  %v86 = getelementptr inbounds float, ptr %v39, i64 %v83
  %v87 = getelementptr inbounds float, ptr %v40, i64 %v83
  %v88 = getelementptr inbounds float, ptr %v41, i64 %v83
  %v89 = getelementptr inbounds float, ptr %v42, i64 %v83
  %v90 = getelementptr inbounds float, ptr %v43, i64 %v83
  %v91 = getelementptr inbounds float, ptr %v44, i64 %v83
  %v92 = getelementptr inbounds float, ptr %v45, i64 %v83
  %v93 = getelementptr inbounds float, ptr %v46, i64 %v83
  %v94 = load <16 x float>, ptr %v85, align 4
  %v95 = getelementptr inbounds float, ptr %v85, i64 16
  %v96 = load <16 x float>, ptr %v95, align 4
  %v97 = load float, ptr %v86, align 4
  %v98 = insertelement <16 x float> poison, float %v97, i64 0
  %v99 = shufflevector <16 x float> %v98, <16 x float> poison, <16 x i32> zeroinitializer
  %v100 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v99, <16 x float> %v94, <16 x float> %c67)
  %v101 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v99, <16 x float> %v96, <16 x float> %c68)
  %v102 = load float, ptr %v87, align 4
  %v103 = insertelement <16 x float> poison, float %v102, i64 0
  %v104 = shufflevector <16 x float> %v103, <16 x float> poison, <16 x i32> zeroinitializer
  %v105 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v104, <16 x float> %v94, <16 x float> %c69)
  %v106 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v104, <16 x float> %v96, <16 x float> %c70)
  %v107 = load float, ptr %v88, align 4
  %v108 = insertelement <16 x float> poison, float %v107, i64 0
  %v109 = shufflevector <16 x float> %v108, <16 x float> poison, <16 x i32> zeroinitializer
  %v110 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v109, <16 x float> %v94, <16 x float> %c71)
  %v111 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v109, <16 x float> %v96, <16 x float> %c72)
  %v112 = load float, ptr %v89, align 4
  %v113 = insertelement <16 x float> poison, float %v112, i64 0
  %v114 = shufflevector <16 x float> %v113, <16 x float> poison, <16 x i32> zeroinitializer
  %v115 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v114, <16 x float> %v94, <16 x float> %c73)
  %v116 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v114, <16 x float> %v96, <16 x float> %c74)
  %v117 = load float, ptr %v90, align 4
  %v118 = insertelement <16 x float> poison, float %v117, i64 0
  %v119 = shufflevector <16 x float> %v118, <16 x float> poison, <16 x i32> zeroinitializer
  %v120 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v119, <16 x float> %v94, <16 x float> %c75)
  %v121 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v119, <16 x float> %v96, <16 x float> %c76)
  %v122 = load float, ptr %v91, align 4
  %v123 = insertelement <16 x float> poison, float %v122, i64 0
  %v124 = shufflevector <16 x float> %v123, <16 x float> poison, <16 x i32> zeroinitializer
  %v125 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v124, <16 x float> %v94, <16 x float> %c77)
  %v126 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v124, <16 x float> %v96, <16 x float> %c78)
  %v127 = load float, ptr %v92, align 4
  %v128 = insertelement <16 x float> poison, float %v127, i64 0
  %v129 = shufflevector <16 x float> %v128, <16 x float> poison, <16 x i32> zeroinitializer
  %v130 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v129, <16 x float> %v94, <16 x float> %c79)
  %v131 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v129, <16 x float> %v96, <16 x float> %c80)
  %v132 = load float, ptr %v93, align 4
  %v133 = insertelement <16 x float> poison, float %v132, i64 0
  %v134 = shufflevector <16 x float> %v133, <16 x float> poison, <16 x i32> zeroinitializer
  %v135 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v134, <16 x float> %v94, <16 x float> %c81)
  %v136 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v134, <16 x float> %v96, <16 x float> %c82)
  %v137 = add nsw i64 %i66, 1
  %v138 = icmp slt i64 %v137, %p16
  br i1 %v138, label %head63, label %after64
after64:
  %v139 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v100, %head63 ]
  %v140 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v101, %head63 ]
  %v141 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v105, %head63 ]
  %v142 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v106, %head63 ]
  %v143 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v110, %head63 ]
  %v144 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v111, %head63 ]
  %v145 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v115, %head63 ]
  %v146 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v116, %head63 ]
  %v147 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v120, %head63 ]
  %v148 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v121, %head63 ]
  %v149 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v125, %head63 ]
  %v150 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v126, %head63 ]
  %v151 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v130, %head63 ]
  %v152 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v131, %head63 ]
  %v153 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v135, %head63 ]
  %v154 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head58 ], [ %v136, %head63 ]
  %v155 = getelementptr inbounds float, ptr %v48, i64 %i61
  store <16 x float> %v139, ptr %v155, align 4
  %v156 = getelementptr inbounds float, ptr %v48, i64 %i61
  %v157 = getelementptr inbounds float, ptr %v156, i64 16
  store <16 x float> %v140, ptr %v157, align 4
  %v158 = getelementptr inbounds float, ptr %v49, i64 %i61
  store <16 x float> %v141, ptr %v158, align 4
  %v159 = getelementptr inbounds float, ptr %v49, i64 %i61
  %v160 = getelementptr inbounds float, ptr %v159, i64 16
  store <16 x float> %v142, ptr %v160, align 4
  %v161 = getelementptr inbounds float, ptr %v50, i64 %i61
  store <16 x float> %v143, ptr %v161, align 4
  %v162 = getelementptr inbounds float, ptr %v50, i64 %i61
  %v163 = getelementptr inbounds float, ptr %v162, i64 16
  store <16 x float> %v144, ptr %v163, align 4
  %v164 = getelementptr inbounds float, ptr %v51, i64 %i61
  store <16 x float> %v145, ptr %v164, align 4
  %v165 = getelementptr inbounds float, ptr %v51, i64 %i61
  %v166 = getelementptr inbounds float, ptr %v165, i64 16
  store <16 x float> %v146, ptr %v166, align 4
  %v167 = getelementptr inbounds float, ptr %v52, i64 %i61
  store <16 x float> %v147, ptr %v167, align 4
  %v168 = getelementptr inbounds float, ptr %v52, i64 %i61
  %v169 = getelementptr inbounds float, ptr %v168, i64 16
  store <16 x float> %v148, ptr %v169, align 4
  %v170 = getelementptr inbounds float, ptr %v53, i64 %i61
  store <16 x float> %v149, ptr %v170, align 4
  %v171 = getelementptr inbounds float, ptr %v53, i64 %i61
  %v172 = getelementptr inbounds float, ptr %v171, i64 16
  store <16 x float> %v150, ptr %v172, align 4
  %v173 = getelementptr inbounds float, ptr %v54, i64 %i61
  store <16 x float> %v151, ptr %v173, align 4
  %v174 = getelementptr inbounds float, ptr %v54, i64 %i61
  %v175 = getelementptr inbounds float, ptr %v174, i64 16
  store <16 x float> %v152, ptr %v175, align 4
  %v176 = getelementptr inbounds float, ptr %v55, i64 %i61
  store <16 x float> %v153, ptr %v176, align 4
  %v177 = getelementptr inbounds float, ptr %v55, i64 %i61
  %v178 = getelementptr inbounds float, ptr %v177, i64 16
  store <16 x float> %v154, ptr %v178, align 4
  %v179 = add nsw i64 %i61, 32
  %v180 = icmp slt i64 %v179, %v57
  br i1 %v180, label %head58, label %after59
after59:
  %v181 = and i64 %v28, 16
  %v182 = icmp ne i64 %v181, 0
  %v183 = and i64 %v28, -32
  %v184 = add nsw i64 %v25, %v183
  br i1 %v182, label %yes185, label %no186
yes185:
  %v187 = getelementptr inbounds float, ptr %v30, i64 %v184
  %v190 = icmp slt i64 0, %p16
  br i1 %v190, label %head188, label %after189
head188:
  %i191 = phi i64 [ 0, %yes185 ], [ %v244, %head188 ]
  %c192 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v215, %head188 ]
  %c193 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v219, %head188 ]
  %c194 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v223, %head188 ]
  %c195 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v227, %head188 ]
  %c196 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v231, %head188 ]
  %c197 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v235, %head188 ]
  %c198 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v239, %head188 ]
  %c199 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v243, %head188 ]
  %v200 = mul nsw i64 %i191, %p17
  %v201 = mul nsw i64 %i191, %p18
  %v202 = getelementptr inbounds float, ptr %v187, i64 %v201
  %v203 = getelementptr inbounds float, ptr %v39, i64 %v200
  %v204 = getelementptr inbounds float, ptr %v40, i64 %v200
  %v205 = getelementptr inbounds float, ptr %v41, i64 %v200
  %v206 = getelementptr inbounds float, ptr %v42, i64 %v200
  %v207 = getelementptr inbounds float, ptr %v43, i64 %v200
  %v208 = getelementptr inbounds float, ptr %v44, i64 %v200
  %v209 = getelementptr inbounds float, ptr %v45, i64 %v200
  %v210 = getelementptr inbounds float, ptr %v46, i64 %v200
  %v211 = load <16 x float>, ptr %v202, align 4
  %v212 = load float, ptr %v203, align 4
  %v213 = insertelement <16 x float> poison, float %v212, i64 0
  %v214 = shufflevector <16 x float> %v213, <16 x float> poison, <16 x i32> zeroinitializer
  %v215 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v214, <16 x float> %v211, <16 x float> %c192)
  %v216 = load float, ptr %v204, align 4
  %v217 = insertelement <16 x float> poison, float %v216, i64 0
  %v218 = shufflevector <16 x float> %v217, <16 x float> poison, <16 x i32> zeroinitializer
  %v219 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v218, <16 x float> %v211, <16 x float> %c193)
  %v220 = load float, ptr %v205, align 4
  %v221 = insertelement <16 x float> poison, float %v220, i64 0
  %v222 = shufflevector <16 x float> %v221, <16 x float> poison, <16 x i32> zeroinitializer
  %v223 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v222, <16 x float> %v211, <16 x float> %c194)
  %v224 = load float, ptr %v206, align 4
  %v225 = insertelement <16 x float> poison, float %v224, i64 0
  %v226 = shufflevector <16 x float> %v225, <16 x float> poison, <16 x i32> zeroinitializer
  %v227 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v226, <16 x float> %v211, <16 x float> %c195)
  %v228 = load float, ptr %v207, align 4
  %v229 = insertelement <16 x float> poison, float %v228, i64 0
  %v230 = shufflevector <16 x float> %v229, <16 x float> poison, <16 x i32> zeroinitializer
  %v231 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v230, <16 x float> %v211, <16 x float> %c196)
  %v232 = load float, ptr %v208, align 4
  %v233 = insertelement <16 x float> poison, float %v232, i64 0
  %v234 = shufflevector <16 x float> %v233, <16 x float> poison, <16 x i32> zeroinitializer
  %v235 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v234, <16 x float> %v211, <16 x float> %c197)
  %v236 = load float, ptr %v209, align 4
  %v237 = insertelement <16 x float> poison, float %v236, i64 0
  %v238 = shufflevector <16 x float> %v237, <16 x float> poison, <16 x i32> zeroinitializer
  %v239 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v238, <16 x float> %v211, <16 x float> %c198)
  %v240 = load float, ptr %v210, align 4
  %v241 = insertelement <16 x float> poison, float %v240, i64 0
  %v242 = shufflevector <16 x float> %v241, <16 x float> poison, <16 x i32> zeroinitializer
  %v243 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v242, <16 x float> %v211, <16 x float> %c199)
  %v244 = add nsw i64 %i191, 1
  %v245 = icmp slt i64 %v244, %p16
  br i1 %v245, label %head188, label %after189
after189:
  %v246 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v215, %head188 ]
  %v247 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v219, %head188 ]
  %v248 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v223, %head188 ]
  %v249 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v227, %head188 ]
  %v250 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v231, %head188 ]
  %v251 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v235, %head188 ]
  %v252 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v239, %head188 ]
  %v253 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes185 ], [ %v243, %head188 ]
  %v254 = getelementptr inbounds float, ptr %v48, i64 %v184
  store <16 x float> %v246, ptr %v254, align 4
  %v255 = getelementptr inbounds float, ptr %v49, i64 %v184
  store <16 x float> %v247, ptr %v255, align 4
  %v256 = getelementptr inbounds float, ptr %v50, i64 %v184
  store <16 x float> %v248, ptr %v256, align 4
  %v257 = getelementptr inbounds float, ptr %v51, i64 %v184
  store <16 x float> %v249, ptr %v257, align 4
  %v258 = getelementptr inbounds float, ptr %v52, i64 %v184
  store <16 x float> %v250, ptr %v258, align 4
  %v259 = getelementptr inbounds float, ptr %v53, i64 %v184
  store <16 x float> %v251, ptr %v259, align 4
  %v260 = getelementptr inbounds float, ptr %v54, i64 %v184
  store <16 x float> %v252, ptr %v260, align 4
  %v261 = getelementptr inbounds float, ptr %v55, i64 %v184
  store <16 x float> %v253, ptr %v261, align 4
  br label %no186
no186:
  %v262 = and i64 %v28, 15
  %v263 = and i64 %v28, -16
  %v264 = add nsw i64 %v25, %v263
  %v265 = icmp ne i64 %v262, 0
  br i1 %v265, label %yes266, label %no267
yes266:
  %v268 = trunc i64 %v262 to i32
  %v269 = insertelement <16 x i32> poison, i32 %v268, i64 0
  %v270 = shufflevector <16 x i32> %v269, <16 x i32> poison, <16 x i32> zeroinitializer
  %v271 = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v270
  %v272 = getelementptr inbounds float, ptr %v30, i64 %v264
  %v275 = icmp slt i64 0, %p16
  br i1 %v275, label %head273, label %after274
head273:
  %i276 = phi i64 [ 0, %yes266 ], [ %v329, %head273 ]
  %c277 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v300, %head273 ]
  %c278 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v304, %head273 ]
  %c279 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v308, %head273 ]
  %c280 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v312, %head273 ]
  %c281 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v316, %head273 ]
  %c282 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v320, %head273 ]
  %c283 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v324, %head273 ]
  %c284 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v328, %head273 ]
  %v285 = mul nsw i64 %i276, %p17
  %v286 = mul nsw i64 %i276, %p18
  %v287 = getelementptr inbounds float, ptr %v272, i64 %v286
  %v288 = getelementptr inbounds float, ptr %v39, i64 %v285
  %v289 = getelementptr inbounds float, ptr %v40, i64 %v285
  %v290 = getelementptr inbounds float, ptr %v41, i64 %v285
  %v291 = getelementptr inbounds float, ptr %v42, i64 %v285
  %v292 = getelementptr inbounds float, ptr %v43, i64 %v285
  %v293 = getelementptr inbounds float, ptr %v44, i64 %v285
  %v294 = getelementptr inbounds float, ptr %v45, i64 %v285
  %v295 = getelementptr inbounds float, ptr %v46, i64 %v285
  %v296 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v287, i32 4, <16 x i1> %v271, <16 x float> zeroinitializer)
  %v297 = load float, ptr %v288, align 4
  %v298 = insertelement <16 x float> poison, float %v297, i64 0
  %v299 = shufflevector <16 x float> %v298, <16 x float> poison, <16 x i32> zeroinitializer
  %v300 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v299, <16 x float> %v296, <16 x float> %c277)
  %v301 = load float, ptr %v289, align 4
  %v302 = insertelement <16 x float> poison, float %v301, i64 0
  %v303 = shufflevector <16 x float> %v302, <16 x float> poison, <16 x i32> zeroinitializer
  %v304 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v303, <16 x float> %v296, <16 x float> %c278)
  %v305 = load float, ptr %v290, align 4
  %v306 = insertelement <16 x float> poison, float %v305, i64 0
  %v307 = shufflevector <16 x float> %v306, <16 x float> poison, <16 x i32> zeroinitializer
  %v308 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v307, <16 x float> %v296, <16 x float> %c279)
  %v309 = load float, ptr %v291, align 4
  %v310 = insertelement <16 x float> poison, float %v309, i64 0
  %v311 = shufflevector <16 x float> %v310, <16 x float> poison, <16 x i32> zeroinitializer
  %v312 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v311, <16 x float> %v296, <16 x float> %c280)
  %v313 = load float, ptr %v292, align 4
  %v314 = insertelement <16 x float> poison, float %v313, i64 0
  %v315 = shufflevector <16 x float> %v314, <16 x float> poison, <16 x i32> zeroinitializer
  %v316 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v315, <16 x float> %v296, <16 x float> %c281)
  %v317 = load float, ptr %v293, align 4
  %v318 = insertelement <16 x float> poison, float %v317, i64 0
  %v319 = shufflevector <16 x float> %v318, <16 x float> poison, <16 x i32> zeroinitializer
  %v320 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v319, <16 x float> %v296, <16 x float> %c282)
  %v321 = load float, ptr %v294, align 4
  %v322 = insertelement <16 x float> poison, float %v321, i64 0
  %v323 = shufflevector <16 x float> %v322, <16 x float> poison, <16 x i32> zeroinitializer
  %v324 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v323, <16 x float> %v296, <16 x float> %c283)
  %v325 = load float, ptr %v295, align 4
  %v326 = insertelement <16 x float> poison, float %v325, i64 0
  %v327 = shufflevector <16 x float> %v326, <16 x float> poison, <16 x i32> zeroinitializer
  %v328 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v327, <16 x float> %v296, <16 x float> %c284)
  %v329 = add nsw i64 %i276, 1
  %v330 = icmp slt i64 %v329, %p16
  br i1 %v330, label %head273, label %after274
after274:
  %v331 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v300, %head273 ]
  %v332 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v304, %head273 ]
  %v333 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v308, %head273 ]
  %v334 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v312, %head273 ]
  %v335 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v316, %head273 ]
  %v336 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v320, %head273 ]
  %v337 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v324, %head273 ]
  %v338 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes266 ], [ %v328, %head273 ]
  %v339 = getelementptr inbounds float, ptr %v48, i64 %v264
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v331, ptr %v339, i32 4, <16 x i1> %v271)
  %v340 = getelementptr inbounds float, ptr %v49, i64 %v264
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v332, ptr %v340, i32 4, <16 x i1> %v271)
  %v341 = getelementptr inbounds float, ptr %v50, i64 %v264
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v333, ptr %v341, i32 4, <16 x i1> %v271)
  %v342 = getelementptr inbounds float, ptr %v51, i64 %v264
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v334, ptr %v342, i32 4, <16 x i1> %v271)
  %v343 = getelementptr inbounds float, ptr %v52, i64 %v264
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v335, ptr %v343, i32 4, <16 x i1> %v271)
  %v344 = getelementptr inbounds float, ptr %v53, i64 %v264
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v336, ptr %v344, i32 4, <16 x i1> %v271)
  %v345 = getelementptr inbounds float, ptr %v54, i64 %v264
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v337, ptr %v345, i32 4, <16 x i1> %v271)
  %v346 = getelementptr inbounds float, ptr %v55, i64 %v264
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v338, ptr %v346, i32 4, <16 x i1> %v271)
  br label %no267
no267:
  %v347 = add nsw i64 %i37, 8
  %v348 = icmp slt i64 %v347, %v33
  br i1 %v348, label %head34, label %after35
after35:
  %v349 = and i64 %v24, 4
  %v350 = icmp ne i64 %v349, 0
  %v351 = and i64 %v24, -8
  %v352 = add nsw i64 %v21, %v351
  br i1 %v350, label %yes353, label %no354
yes353:
  %v355 = mul nsw i64 %v352, %p10
  %v356 = getelementptr inbounds float, ptr %v29, i64 %v355
  %v357 = getelementptr inbounds float, ptr %v356, i64 %p10
  %v358 = getelementptr inbounds float, ptr %v357, i64 %p10
  %v359 = getelementptr inbounds float, ptr %v358, i64 %p10
  %v360 = mul nsw i64 %v352, %p11
  %v361 = getelementptr inbounds float, ptr %v31, i64 %v360
  %v362 = getelementptr inbounds float, ptr %v361, i64 %p11
  %v363 = getelementptr inbounds float, ptr %v362, i64 %p11
  %v364 = getelementptr inbounds float, ptr %v363, i64 %p11
  %v365 = and i64 %v28, -32
  %v366 = add nsw i64 %v25, %v365
  %v369 = icmp slt i64 %v25, %v366
  br i1 %v369, label %head367, label %after368
head367:
  %i370 = phi i64 [ %v25, %yes353 ], [ %v436, %after373 ]
  %v371 = getelementptr inbounds float, ptr %v30, i64 %i370
  %v374 = icmp slt i64 0, %p16
  br i1 %v374, label %head372, label %after373
head372:
  %i375 = phi i64 [ 0, %head367 ], [ %v414, %head372 ]
  %c376 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v397, %head372 ]
  %c377 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v398, %head372 ]
  %c378 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v402, %head372 ]
  %c379 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v403, %head372 ]
  %c380 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v407, %head372 ]
  %c381 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v408, %head372 ]
  %c382 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v412, %head372 ]
  %c383 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v413, %head372 ]
  %v384 = mul nsw i64 %i375, %p17
  %v385 = mul nsw i64 %i375, %p18
  %v386 = getelementptr inbounds float, ptr %v371, i64 %v385
  %v387 = getelementptr inbounds float, ptr %v356, i64 %v384
  %v388 = getelementptr inbounds float, ptr %v357, i64 %v384
  %v389 = getelementptr inbounds float, ptr %v358, i64 %v384
  %v390 = getelementptr inbounds float, ptr %v359, i64 %v384
  %v391 = load <16 x float>, ptr %v386, align 4
  %v392 = getelementptr inbounds float, ptr %v386, i64 16
  %v393 = load <16 x float>, ptr %v392, align 4
  %v394 = load float, ptr %v387, align 4
  %v395 = insertelement <16 x float> poison, float %v394, i64 0
  %v396 = shufflevector <16 x float> %v395, <16 x float> poison, <16 x i32> zeroinitializer
  %v397 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v396, <16 x float> %v391, <16 x float> %c376)
  %v398 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v396, <16 x float> %v393, <16 x float> %c377)
  %v399 = load float, ptr %v388, align 4
  %v400 = insertelement <16 x float> poison, float %v399, i64 0
  %v401 = shufflevector <16 x float> %v400, <16 x float> poison, <16 x i32> zeroinitializer
  %v402 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v401, <16 x float> %v391, <16 x float> %c378)
  %v403 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v401, <16 x float> %v393, <16 x float> %c379)
  %v404 = load float, ptr %v389, align 4
  %v405 = insertelement <16 x float> poison, float %v404, i64 0
  %v406 = shufflevector <16 x float> %v405, <16 x float> poison, <16 x i32> zeroinitializer
  %v407 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v406, <16 x float> %v391, <16 x float> %c380)
  %v408 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v406, <16 x float> %v393, <16 x float> %c381)
  %v409 = load float, ptr %v390, align 4
  %v410 = insertelement <16 x float> poison, float %v409, i64 0
  %v411 = shufflevector <16 x float> %v410, <16 x float> poison, <16 x i32> zeroinitializer
  %v412 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v411, <16 x float> %v391, <16 x float> %c382)
  %v413 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v411, <16 x float> %v393, <16 x float> %c383)
  %v414 = add nsw i64 %i375, 1
  %v415 = icmp slt i64 %v414, %p16
  br i1 %v415, label %head372, label %after373
after373:
  %v416 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v397, %head372 ]
  %v417 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v398, %head372 ]
  %v418 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v402, %head372 ]
  %v419 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v403, %head372 ]
  %v420 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v407, %head372 ]
  %v421 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v408, %head372 ]
  %v422 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v412, %head372 ]
  %v423 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head367 ], [ %v413, %head372 ]
  %v424 = getelementptr inbounds float, ptr %v361, i64 %i370
  store <16 x float> %v416, ptr %v424, align 4
  %v425 = getelementptr inbounds float, ptr %v361, i64 %i370
  %v426 = getelementptr inbounds float, ptr %v425, i64 16
  store <16 x float> %v417, ptr %v426, align 4
  %v427 = getelementptr inbounds float, ptr %v362, i64 %i370
  store <16 x float> %v418, ptr %v427, align 4
  %v428 = getelementptr inbounds float, ptr %v362, i64 %i370
  %v429 = getelementptr inbounds float, ptr %v428, i64 16
  store <16 x float> %v419, ptr %v429, align 4
  %v430 = getelementptr inbounds float, ptr %v363, i64 %i370
  store <16 x float> %v420, ptr %v430, align 4
  %v431 = getelementptr inbounds float, ptr %v363, i64 %i370
  %v432 = getelementptr inbounds float, ptr %v431, i64 16
  store <16 x float> %v421, ptr %v432, align 4
  %v433 = getelementptr inbounds float, ptr %v364, i64 %i370
  store <16 x float> %v422, ptr %v433, align 4
  %v434 = getelementptr inbounds float, ptr %v364, i64 %i370
  %v435 = getelementptr inbounds float, ptr %v434, i64 16
  store <16 x float> %v423, ptr %v435, align 4
  %v436 = add nsw i64 %i370, 32
  %v437 = icmp slt i64 %v436, %v366
  br i1 %v437, label %head367, label %after368
after368:
  %v438 = and i64 %v28, 16
  %v439 = icmp ne i64 %v438, 0
  %v440 = and i64 %v28, -32
  %v441 = add nsw i64 %v25, %v440
  br i1 %v439, label %yes442, label %no443
yes442:
  %v444 = getelementptr inbounds float, ptr %v30, i64 %v441
  %v447 = icmp slt i64 0, %p16
  br i1 %v447, label %head445, label %after446
head445:
  %i448 = phi i64 [ 0, %yes442 ], [ %v477, %head445 ]
  %c449 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes442 ], [ %v464, %head445 ]
  %c450 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes442 ], [ %v468, %head445 ]
  %c451 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes442 ], [ %v472, %head445 ]
  %c452 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes442 ], [ %v476, %head445 ]
  %v453 = mul nsw i64 %i448, %p17
  %v454 = mul nsw i64 %i448, %p18
  %v455 = getelementptr inbounds float, ptr %v444, i64 %v454
  %v456 = getelementptr inbounds float, ptr %v356, i64 %v453
  %v457 = getelementptr inbounds float, ptr %v357, i64 %v453
  %v458 = getelementptr inbounds float, ptr %v358, i64 %v453
  %v459 = getelementptr inbounds float, ptr %v359, i64 %v453
  %v460 = load <16 x float>, ptr %v455, align 4
  %v461 = load float, ptr %v456, align 4
  %v462 = insertelement <16 x float> poison, float %v461, i64 0
  %v463 = shufflevector <16 x float> %v462, <16 x float> poison, <16 x i32> zeroinitializer
  %v464 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v463, <16 x float> %v460, <16 x float> %c449)
  %v465 = load float, ptr %v457, align 4
  %v466 = insertelement <16 x float> poison, float %v465, i64 0
  %v467 = shufflevector <16 x float> %v466, <16 x float> poison, <16 x i32> zeroinitializer
  %v468 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v467, <16 x float> %v460, <16 x float> %c450)
  %v469 = load float, ptr %v458, align 4
  %v470 = insertelement <16 x float> poison, float %v469, i64 0
  %v471 = shufflevector <16 x float> %v470, <16 x float> poison, <16 x i32> zeroinitializer
  %v472 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v471, <16 x float> %v460, <16 x float> %c451)
  %v473 = load float, ptr %v459, align 4
  %v474 = insertelement <16 x float> poison, float %v473, i64 0
  %v475 = shufflevector <16 x float> %v474, <16 x float> poison, <16 x i32> zeroinitializer
  %v476 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v475, <16 x float> %v460, <16 x float> %c452)
  %v477 = add nsw i64 %i448, 1
  %v478 = icmp slt i64 %v477, %p16
  br i1 %v478, label %head445, label %after446
after446:
  %v479 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes442 ], [ %v464, %head445 ]
  %v480 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes442 ], [ %v468, %head445 ]
  %v481 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes442 ], [ %v472, %head445 ]
  %v482 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes442 ], [ %v476, %head445 ]
  %v483 = getelementptr inbounds float, ptr %v361, i64 %v441
  store <16 x float> %v479, ptr %v483, align 4
  %v484 = getelementptr inbounds float, ptr %v362, i64 %v441
  store <16 x float> %v480, ptr %v484, align 4
  %v485 = getelementptr inbounds float, ptr %v363, i64 %v441
  store <16 x float> %v481, ptr %v485, align 4
  %v486 = getelementptr inbounds float, ptr %v364, i64 %v441
  store <16 x float> %v482, ptr %v486, align 4
  br label %no443
no443:
  %v487 = and i64 %v28, 15
  %v488 = and i64 %v28, -16
  %v489 = add nsw i64 %v25, %v488
  %v490 = icmp ne i64 %v487, 0
  br i1 %v490, label %yes491, label %no492
yes491:
  %v493 = trunc i64 %v487 to i32
  %v494 = insertelement <16 x i32> poison, i32 %v493, i64 0
  %v495 = shufflevector <16 x i32> %v494, <16 x i32> poison, <16 x i32> zeroinitializer
  %v496 = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v495
  %v497 = getelementptr inbounds float, ptr %v30, i64 %v489
  %v500 = icmp slt i64 0, %p16
  br i1 %v500, label %head498, label %after499
head498:
  %i501 = phi i64 [ 0, %yes491 ], [ %v530, %head498 ]
  %c502 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes491 ], [ %v517, %head498 ]
  %c503 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes491 ], [ %v521, %head498 ]
  %c504 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes491 ], [ %v525, %head498 ]
  %c505 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes491 ], [ %v529, %head498 ]
  %v506 = mul nsw i64 %i501, %p17
  %v507 = mul nsw i64 %i501, %p18
  %v508 = getelementptr inbounds float, ptr %v497, i64 %v507
  %v509 = getelementptr inbounds float, ptr %v356, i64 %v506
  %v510 = getelementptr inbounds float, ptr %v357, i64 %v506
  %v511 = getelementptr inbounds float, ptr %v358, i64 %v506
  %v512 = getelementptr inbounds float, ptr %v359, i64 %v506
  %v513 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v508, i32 4, <16 x i1> %v496, <16 x float> zeroinitializer)
  %v514 = load float, ptr %v509, align 4
  %v515 = insertelement <16 x float> poison, float %v514, i64 0
  %v516 = shufflevector <16 x float> %v515, <16 x float> poison, <16 x i32> zeroinitializer
  %v517 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v516, <16 x float> %v513, <16 x float> %c502)
  %v518 = load float, ptr %v510, align 4
  %v519 = insertelement <16 x float> poison, float %v518, i64 0
  %v520 = shufflevector <16 x float> %v519, <16 x float> poison, <16 x i32> zeroinitializer
  %v521 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v520, <16 x float> %v513, <16 x float> %c503)
  %v522 = load float, ptr %v511, align 4
  %v523 = insertelement <16 x float> poison, float %v522, i64 0
  %v524 = shufflevector <16 x float> %v523, <16 x float> poison, <16 x i32> zeroinitializer
  %v525 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v524, <16 x float> %v513, <16 x float> %c504)
  %v526 = load float, ptr %v512, align 4
  %v527 = insertelement <16 x float> poison, float %v526, i64 0
  %v528 = shufflevector <16 x float> %v527, <16 x float> poison, <16 x i32> zeroinitializer
  %v529 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v528, <16 x float> %v513, <16 x float> %c505)
  %v530 = add nsw i64 %i501, 1
  %v531 = icmp slt i64 %v530, %p16
  br i1 %v531, label %head498, label %after499
after499:
  %v532 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes491 ], [ %v517, %head498 ]
  %v533 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes491 ], [ %v521, %head498 ]
  %v534 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes491 ], [ %v525, %head498 ]
  %v535 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes491 ], [ %v529, %head498 ]
  %v536 = getelementptr inbounds float, ptr %v361, i64 %v489
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v532, ptr %v536, i32 4, <16 x i1> %v496)
  %v537 = getelementptr inbounds float, ptr %v362, i64 %v489
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v533, ptr %v537, i32 4, <16 x i1> %v496)
  %v538 = getelementptr inbounds float, ptr %v363, i64 %v489
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v534, ptr %v538, i32 4, <16 x i1> %v496)
  %v539 = getelementptr inbounds float, ptr %v364, i64 %v489
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v535, ptr %v539, i32 4, <16 x i1> %v496)
  br label %no492
no492:
  br label %no354
no354:
  %v540 = and i64 %v24, 2
  %v541 = icmp ne i64 %v540, 0
  %v542 = and i64 %v24, -4
  %v543 = add nsw i64 %v21, %v542
  br i1 %v541, label %yes544, label %no545
yes544:
  %v546 = mul nsw i64 %v543, %p10
  %v547 = getelementptr inbounds float, ptr %v29, i64 %v546
  %v548 = getelementptr inbounds float, ptr %v547, i64 %p10
  %v549 = mul nsw i64 %v543, %p11
  %v550 = getelementptr inbounds float, ptr %v31, i64 %v549
  %v551 = getelementptr inbounds float, ptr %v550, i64 %p11
  %v552 = and i64 %v28, -64
  %v553 = add nsw i64 %v25, %v552
  %v556 = icmp slt i64 %v25, %v553
  br i1 %v556, label %head554, label %after555
head554:
  %i557 = phi i64 [ %v25, %yes544 ], [ %v621, %after560 ]
  %v558 = getelementptr inbounds float, ptr %v30, i64 %i557
  %v561 = icmp slt i64 0, %p16
  br i1 %v561, label %head559, label %after560
head559:
  %i562 = phi i64 [ 0, %head554 ], [ %v597, %head559 ]
  %c563 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v586, %head559 ]
  %c564 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v587, %head559 ]
  %c565 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v588, %head559 ]
  %c566 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v589, %head559 ]
  %c567 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v593, %head559 ]
  %c568 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v594, %head559 ]
  %c569 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v595, %head559 ]
  %c570 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v596, %head559 ]
  %v571 = mul nsw i64 %i562, %p17
  %v572 = mul nsw i64 %i562, %p18
  %v573 = getelementptr inbounds float, ptr %v558, i64 %v572
  %v574 = getelementptr inbounds float, ptr %v547, i64 %v571
  %v575 = getelementptr inbounds float, ptr %v548, i64 %v571
  %v576 = load <16 x float>, ptr %v573, align 4
  %v577 = getelementptr inbounds float, ptr %v573, i64 16
  %v578 = load <16 x float>, ptr %v577, align 4
  %v579 = getelementptr inbounds float, ptr %v573, i64 32
  %v580 = load <16 x float>, ptr %v579, align 4
  %v581 = getelementptr inbounds float, ptr %v573, i64 48
  %v582 = load <16 x float>, ptr %v581, align 4
  %v583 = load float, ptr %v574, align 4
  %v584 = insertelement <16 x float> poison, float %v583, i64 0
  %v585 = shufflevector <16 x float> %v584, <16 x float> poison, <16 x i32> zeroinitializer
  %v586 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v585, <16 x float> %v576, <16 x float> %c563)
  %v587 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v585, <16 x float> %v578, <16 x float> %c564)
  %v588 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v585, <16 x float> %v580, <16 x float> %c565)
  %v589 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v585, <16 x float> %v582, <16 x float> %c566)
  %v590 = load float, ptr %v575, align 4
  %v591 = insertelement <16 x float> poison, float %v590, i64 0
  %v592 = shufflevector <16 x float> %v591, <16 x float> poison, <16 x i32> zeroinitializer
  %v593 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v592, <16 x float> %v576, <16 x float> %c567)
  %v594 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v592, <16 x float> %v578, <16 x float> %c568)
  %v595 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v592, <16 x float> %v580, <16 x float> %c569)
  %v596 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v592, <16 x float> %v582, <16 x float> %c570)
  %v597 = add nsw i64 %i562, 1
  %v598 = icmp slt i64 %v597, %p16
  br i1 %v598, label %head559, label %after560
after560:
  %v599 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v586, %head559 ]
  %v600 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v587, %head559 ]
  %v601 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v588, %head559 ]
  %v602 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v589, %head559 ]
  %v603 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v593, %head559 ]
  %v604 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v594, %head559 ]
  %v605 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v595, %head559 ]
  %v606 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head554 ], [ %v596, %head559 ]
  %v607 = getelementptr inbounds float, ptr %v550, i64 %i557
  store <16 x float> %v599, ptr %v607, align 4
  %v608 = getelementptr inbounds float, ptr %v550, i64 %i557
  %v609 = getelementptr inbounds float, ptr %v608, i64 16
  store <16 x float> %v600, ptr %v609, align 4
  %v610 = getelementptr inbounds float, ptr %v550, i64 %i557
  %v611 = getelementptr inbounds float, ptr %v610, i64 32
  store <16 x float> %v601, ptr %v611, align 4
  %v612 = getelementptr inbounds float, ptr %v550, i64 %i557
  %v613 = getelementptr inbounds float, ptr %v612, i64 48
  store <16 x float> %v602, ptr %v613, align 4
  %v614 = getelementptr inbounds float, ptr %v551, i64 %i557
  store <16 x float> %v603, ptr %v614, align 4
  %v615 = getelementptr inbounds float, ptr %v551, i64 %i557
  %v616 = getelementptr inbounds float, ptr %v615, i64 16
  store <16 x float> %v604, ptr %v616, align 4
  %v617 = getelementptr inbounds float, ptr %v551, i64 %i557
  %v618 = getelementptr inbounds float, ptr %v617, i64 32
  store <16 x float> %v605, ptr %v618, align 4
  %v619 = getelementptr inbounds float, ptr %v551, i64 %i557
  %v620 = getelementptr inbounds float, ptr %v619, i64 48
  store <16 x float> %v606, ptr %v620, align 4
  %v621 = add nsw i64 %i557, 64
  %v622 = icmp slt i64 %v621, %v553
  br i1 %v622, label %head554, label %after555
after555:
  %v623 = and i64 %v28, 32
  %v624 = icmp ne i64 %v623, 0
  %v625 = and i64 %v28, -64
  %v626 = add nsw i64 %v25, %v625
  br i1 %v624, label %yes627, label %no628
yes627:
  %v629 = getelementptr inbounds float, ptr %v30, i64 %v626
  %v632 = icmp slt i64 0, %p16
  br i1 %v632, label %head630, label %after631
head630:
  %i633 = phi i64 [ 0, %yes627 ], [ %v656, %head630 ]
  %c634 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes627 ], [ %v649, %head630 ]
  %c635 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes627 ], [ %v650, %head630 ]
  %c636 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes627 ], [ %v654, %head630 ]
  %c637 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes627 ], [ %v655, %head630 ]
  %v638 = mul nsw i64 %i633, %p17
  %v639 = mul nsw i64 %i633, %p18
  %v640 = getelementptr inbounds float, ptr %v629, i64 %v639
  %v641 = getelementptr inbounds float, ptr %v547, i64 %v638
  %v642 = getelementptr inbounds float, ptr %v548, i64 %v638
  %v643 = load <16 x float>, ptr %v640, align 4
  %v644 = getelementptr inbounds float, ptr %v640, i64 16
  %v645 = load <16 x float>, ptr %v644, align 4
  %v646 = load float, ptr %v641, align 4
  %v647 = insertelement <16 x float> poison, float %v646, i64 0
  %v648 = shufflevector <16 x float> %v647, <16 x float> poison, <16 x i32> zeroinitializer
  %v649 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v648, <16 x float> %v643, <16 x float> %c634)
  %v650 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v648, <16 x float> %v645, <16 x float> %c635)
  %v651 = load float, ptr %v642, align 4
  %v652 = insertelement <16 x float> poison, float %v651, i64 0
  %v653 = shufflevector <16 x float> %v652, <16 x float> poison, <16 x i32> zeroinitializer
  %v654 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v653, <16 x float> %v643, <16 x float> %c636)
  %v655 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v653, <16 x float> %v645, <16 x float> %c637)
  %v656 = add nsw i64 %i633, 1
  %v657 = icmp slt i64 %v656, %p16
  br i1 %v657, label %head630, label %after631
after631:
  %v658 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes627 ], [ %v649, %head630 ]
  %v659 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes627 ], [ %v650, %head630 ]
  %v660 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes627 ], [ %v654, %head630 ]
  %v661 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes627 ], [ %v655, %head630 ]
  %v662 = getelementptr inbounds float, ptr %v550, i64 %v626
  store <16 x float> %v658, ptr %v662, align 4
  %v663 = getelementptr inbounds float, ptr %v550, i64 %v626
  %v664 = getelementptr inbounds float, ptr %v663, i64 16
  store <16 x float> %v659, ptr %v664, align 4
  %v665 = getelementptr inbounds float, ptr %v551, i64 %v626
  store <16 x float> %v660, ptr %v665, align 4
  %v666 = getelementptr inbounds float, ptr %v551, i64 %v626
  %v667 = getelementptr inbounds float, ptr %v666, i64 16
  store <16 x float> %v661, ptr %v667, align 4
  br label %no628
no628:
  %v668 = and i64 %v28, 16
  %v669 = icmp ne i64 %v668, 0
  %v670 = and i64 %v28, -32
  %v671 = add nsw i64 %v25, %v670
  br i1 %v669, label %yes672, label %no673
yes672:
  %v674 = getelementptr inbounds float, ptr %v30, i64 %v671
  %v677 = icmp slt i64 0, %p16
  br i1 %v677, label %head675, label %after676
head675:
  %i678 = phi i64 [ 0, %yes672 ], [ %v695, %head675 ]
  %c679 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes672 ], [ %v690, %head675 ]
  %c680 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes672 ], [ %v694, %head675 ]
  %v681 = mul nsw i64 %i678, %p17
  %v682 = mul nsw i64 %i678, %p18
  %v683 = getelementptr inbounds float, ptr %v674, i64 %v682
  %v684 = getelementptr inbounds float, ptr %v547, i64 %v681
  %v685 = getelementptr inbounds float, ptr %v548, i64 %v681
  %v686 = load <16 x float>, ptr %v683, align 4
  %v687 = load float, ptr %v684, align 4
  %v688 = insertelement <16 x float> poison, float %v687, i64 0
  %v689 = shufflevector <16 x float> %v688, <16 x float> poison, <16 x i32> zeroinitializer
  %v690 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v689, <16 x float> %v686, <16 x float> %c679)
  %v691 = load float, ptr %v685, align 4
  %v692 = insertelement <16 x float> poison, float %v691, i64 0
  %v693 = shufflevector <16 x float> %v692, <16 x float> poison, <16 x i32> zeroinitializer
  %v694 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v693, <16 x float> %v686, <16 x float> %c680)
  %v695 = add nsw i64 %i678, 1
  %v696 = icmp slt i64 %v695, %p16
  br i1 %v696, label %head675, label %after676
after676:
  %v697 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes672 ], [ %v690, %head675 ]
  %v698 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes672 ], [ %v694, %head675 ]
  %v699 = getelementptr inbounds float, ptr %v550, i64 %v671
  store <16 x float> %v697, ptr %v699, align 4
  %v700 = getelementptr inbounds float, ptr %v551, i64 %v671
  store <16 x float> %v698, ptr %v700, align 4
  br label %no673
no673:
  %v701 = and i64 %v28, 15
  %v702 = and i64 %v28, -16
  %v703 = add nsw i64 %v25, %v702
  %v704 = icmp ne i64 %v701, 0
  br i1 %v704, label %yes705, label %no706
yes705:
  %v707 = trunc i64 %v701 to i32
  %v708 = insertelement <16 x i32> poison, i32 %v707, i64 0
  %v709 = shufflevector <16 x i32> %v708, <16 x i32> poison, <16 x i32> zeroinitializer
  %v710 = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v709
  %v711 = getelementptr inbounds float, ptr %v30, i64 %v703
  %v714 = icmp slt i64 0, %p16
  br i1 %v714, label %head712, label %after713
head712:
  %i715 = phi i64 [ 0, %yes705 ], [ %v732, %head712 ]
  %c716 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes705 ], [ %v727, %head712 ]
  %c717 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes705 ], [ %v731, %head712 ]
  %v718 = mul nsw i64 %i715, %p17
  %v719 = mul nsw i64 %i715, %p18
  %v720 = getelementptr inbounds float, ptr %v711, i64 %v719
  %v721 = getelementptr inbounds float, ptr %v547, i64 %v718
  %v722 = getelementptr inbounds float, ptr %v548, i64 %v718
  %v723 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v720, i32 4, <16 x i1> %v710, <16 x float> zeroinitializer)
  %v724 = load float, ptr %v721, align 4
  %v725 = insertelement <16 x float> poison, float %v724, i64 0
  %v726 = shufflevector <16 x float> %v725, <16 x float> poison, <16 x i32> zeroinitializer
  %v727 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v726, <16 x float> %v723, <16 x float> %c716)
  %v728 = load float, ptr %v722, align 4
  %v729 = insertelement <16 x float> poison, float %v728, i64 0
  %v730 = shufflevector <16 x float> %v729, <16 x float> poison, <16 x i32> zeroinitializer
  %v731 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v730, <16 x float> %v723, <16 x float> %c717)
  %v732 = add nsw i64 %i715, 1
  %v733 = icmp slt i64 %v732, %p16
  br i1 %v733, label %head712, label %after713
after713:
  %v734 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes705 ], [ %v727, %head712 ]
  %v735 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes705 ], [ %v731, %head712 ]
  %v736 = getelementptr inbounds float, ptr %v550, i64 %v703
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v734, ptr %v736, i32 4, <16 x i1> %v710)
  %v737 = getelementptr inbounds float, ptr %v551, i64 %v703
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v735, ptr %v737, i32 4, <16 x i1> %v710)
  br label %no706
no706:
  br label %no545
no545:
  %v738 = and i64 %v24, 1
  %v739 = icmp ne i64 %v738, 0
  %v740 = and i64 %v24, -2
  %v741 = add nsw i64 %v21, %v740
  br i1 %v739, label %yes742, label %no743
yes742:
  %v744 = mul nsw i64 %v741, %p10
  %v745 = getelementptr inbounds float, ptr %v29, i64 %v744
  %v746 = mul nsw i64 %v741, %p11
  %v747 = getelementptr inbounds float, ptr %v31, i64 %v746
  %v748 = and i64 %v28, -128
  %v749 = add nsw i64 %v25, %v748
  %v752 = icmp slt i64 %v25, %v749
  br i1 %v752, label %head750, label %after751
head750:
  %i753 = phi i64 [ %v25, %yes742 ], [ %v822, %after756 ]
  %v754 = getelementptr inbounds float, ptr %v30, i64 %i753
  %v757 = icmp slt i64 0, %p16
  br i1 %v757, label %head755, label %after756
head755:
  %i758 = phi i64 [ 0, %head750 ], [ %v797, %head755 ]
  %c759 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v789, %head755 ]
  %c760 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v790, %head755 ]
  %c761 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v791, %head755 ]
  %c762 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v792, %head755 ]
  %c763 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v793, %head755 ]
  %c764 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v794, %head755 ]
  %c765 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v795, %head755 ]
  %c766 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v796, %head755 ]
  %v767 = mul nsw i64 %i758, %p17
  %v768 = mul nsw i64 %i758, %p18
  %v769 = getelementptr inbounds float, ptr %v754, i64 %v768
  %v770 = getelementptr inbounds float, ptr %v745, i64 %v767
  %v771 = load <16 x float>, ptr %v769, align 4
  %v772 = getelementptr inbounds float, ptr %v769, i64 16
  %v773 = load <16 x float>, ptr %v772, align 4
  %v774 = getelementptr inbounds float, ptr %v769, i64 32
  %v775 = load <16 x float>, ptr %v774, align 4
  %v776 = getelementptr inbounds float, ptr %v769, i64 48
  %v777 = load <16 x float>, ptr %v776, align 4
  %v778 = getelementptr inbounds float, ptr %v769, i64 64
  %v779 = load <16 x float>, ptr %v778, align 4
  %v780 = getelementptr inbounds float, ptr %v769, i64 80
  %v781 = load <16 x float>, ptr %v780, align 4
  %v782 = getelementptr inbounds float, ptr %v769, i64 96
  %v783 = load <16 x float>, ptr %v782, align 4
  %v784 = getelementptr inbounds float, ptr %v769, i64 112
  %v785 = load <16 x float>, ptr %v784, align 4
  %v786 = load float, ptr %v770, align 4
  %v787 = insertelement <16 x float> poison, float %v786, i64 0
  %v788 = shufflevector <16 x float> %v787, <16 x float> poison, <16 x i32> zeroinitializer
  %v789 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v788, <16 x float> %v771, <16 x float> %c759)
  %v790 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v788, <16 x float> %v773, <16 x float> %c760)
  %v791 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v788, <16 x float> %v775, <16 x float> %c761)
  %v792 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v788, <16 x float> %v777, <16 x float> %c762)
  %v793 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v788, <16 x float> %v779, <16 x float> %c763)
  %v794 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v788, <16 x float> %v781, <16 x float> %c764)
  %v795 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v788, <16 x float> %v783, <16 x float> %c765)
  %v796 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v788, <16 x float> %v785, <16 x float> %c766)
  %v797 = add nsw i64 %i758, 1
  %v798 = icmp slt i64 %v797, %p16
  br i1 %v798, label %head755, label %after756
after756:
  %v799 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v789, %head755 ]
  %v800 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v790, %head755 ]
  %v801 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v791, %head755 ]
  %v802 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v792, %head755 ]
  %v803 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v793, %head755 ]
  %v804 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v794, %head755 ]
  %v805 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v795, %head755 ]
  %v806 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %head750 ], [ %v796, %head755 ]
  %v807 = getelementptr inbounds float, ptr %v747, i64 %i753
  store <16 x float> %v799, ptr %v807, align 4
  %v808 = getelementptr inbounds float, ptr %v747, i64 %i753
  %v809 = getelementptr inbounds float, ptr %v808, i64 16
  store <16 x float> %v800, ptr %v809, align 4
  %v810 = getelementptr inbounds float, ptr %v747, i64 %i753
  %v811 = getelementptr inbounds float, ptr %v810, i64 32
  store <16 x float> %v801, ptr %v811, align 4
  %v812 = getelementptr inbounds float, ptr %v747, i64 %i753
  %v813 = getelementptr inbounds float, ptr %v812, i64 48
  store <16 x float> %v802, ptr %v813, align 4
  %v814 = getelementptr inbounds float, ptr %v747, i64 %i753
  %v815 = getelementptr inbounds float, ptr %v814, i64 64
  store <16 x float> %v803, ptr %v815, align 4
  %v816 = getelementptr inbounds float, ptr %v747, i64 %i753
  %v817 = getelementptr inbounds float, ptr %v816, i64 80
  store <16 x float> %v804, ptr %v817, align 4
  %v818 = getelementptr inbounds float, ptr %v747, i64 %i753
  %v819 = getelementptr inbounds float, ptr %v818, i64 96
  store <16 x float> %v805, ptr %v819, align 4
  %v820 = getelementptr inbounds float, ptr %v747, i64 %i753
  %v821 = getelementptr inbounds float, ptr %v820, i64 112
  store <16 x float> %v806, ptr %v821, align 4
  %v822 = add nsw i64 %i753, 128
  %v823 = icmp slt i64 %v822, %v749
  br i1 %v823, label %head750, label %after751
after751:
  %v824 = and i64 %v28, 64
  %v825 = icmp ne i64 %v824, 0
  %v826 = and i64 %v28, -128
  %v827 = add nsw i64 %v25, %v826
  br i1 %v825, label %yes828, label %no829
yes828:
  %v830 = getelementptr inbounds float, ptr %v30, i64 %v827
  %v833 = icmp slt i64 0, %p16
  br i1 %v833, label %head831, label %after832
head831:
  %i834 = phi i64 [ 0, %yes828 ], [ %v857, %head831 ]
  %c835 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes828 ], [ %v853, %head831 ]
  %c836 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes828 ], [ %v854, %head831 ]
  %c837 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes828 ], [ %v855, %head831 ]
  %c838 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes828 ], [ %v856, %head831 ]
  %v839 = mul nsw i64 %i834, %p17
  %v840 = mul nsw i64 %i834, %p18
  %v841 = getelementptr inbounds float, ptr %v830, i64 %v840
  %v842 = getelementptr inbounds float, ptr %v745, i64 %v839
  %v843 = load <16 x float>, ptr %v841, align 4
  %v844 = getelementptr inbounds float, ptr %v841, i64 16
  %v845 = load <16 x float>, ptr %v844, align 4
  %v846 = getelementptr inbounds float, ptr %v841, i64 32
  %v847 = load <16 x float>, ptr %v846, align 4
  %v848 = getelementptr inbounds float, ptr %v841, i64 48
  %v849 = load <16 x float>, ptr %v848, align 4
  %v850 = load float, ptr %v842, align 4
  %v851 = insertelement <16 x float> poison, float %v850, i64 0
  %v852 = shufflevector <16 x float> %v851, <16 x float> poison, <16 x i32> zeroinitializer
  %v853 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v852, <16 x float> %v843, <16 x float> %c835)
  %v854 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v852, <16 x float> %v845, <16 x float> %c836)
  %v855 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v852, <16 x float> %v847, <16 x float> %c837)
  %v856 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v852, <16 x float> %v849, <16 x float> %c838)
  %v857 = add nsw i64 %i834, 1
  %v858 = icmp slt i64 %v857, %p16
  br i1 %v858, label %head831, label %after832
after832:
  %v859 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes828 ], [ %v853, %head831 ]
  %v860 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes828 ], [ %v854, %head831 ]
  %v861 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes828 ], [ %v855, %head831 ]
  %v862 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes828 ], [ %v856, %head831 ]
  %v863 = getelementptr inbounds float, ptr %v747, i64 %v827
  store <16 x float> %v859, ptr %v863, align 4
  %v864 = getelementptr inbounds float, ptr %v747, i64 %v827
  %v865 = getelementptr inbounds float, ptr %v864, i64 16
  store <16 x float> %v860, ptr %v865, align 4
  %v866 = getelementptr inbounds float, ptr %v747, i64 %v827
  %v867 = getelementptr inbounds float, ptr %v866, i64 32
  store <16 x float> %v861, ptr %v867, align 4
  %v868 = getelementptr inbounds float, ptr %v747, i64 %v827
  %v869 = getelementptr inbounds float, ptr %v868, i64 48
  store <16 x float> %v862, ptr %v869, align 4
  br label %no829
no829:
  %v870 = and i64 %v28, 32
  %v871 = icmp ne i64 %v870, 0
  %v872 = and i64 %v28, -64
  %v873 = add nsw i64 %v25, %v872
  br i1 %v871, label %yes874, label %no875
yes874:
  %v876 = getelementptr inbounds float, ptr %v30, i64 %v873
  %v879 = icmp slt i64 0, %p16
  br i1 %v879, label %head877, label %after878
head877:
  %i880 = phi i64 [ 0, %yes874 ], [ %v895, %head877 ]
  %c881 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes874 ], [ %v893, %head877 ]
  %c882 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes874 ], [ %v894, %head877 ]
  %v883 = mul nsw i64 %i880, %p17
  %v884 = mul nsw i64 %i880, %p18
  %v885 = getelementptr inbounds float, ptr %v876, i64 %v884
  %v886 = getelementptr inbounds float, ptr %v745, i64 %v883
  %v887 = load <16 x float>, ptr %v885, align 4
  %v888 = getelementptr inbounds float, ptr %v885, i64 16
  %v889 = load <16 x float>, ptr %v888, align 4
  %v890 = load float, ptr %v886, align 4
  %v891 = insertelement <16 x float> poison, float %v890, i64 0
  %v892 = shufflevector <16 x float> %v891, <16 x float> poison, <16 x i32> zeroinitializer
  %v893 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v892, <16 x float> %v887, <16 x float> %c881)
  %v894 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v892, <16 x float> %v889, <16 x float> %c882)
  %v895 = add nsw i64 %i880, 1
  %v896 = icmp slt i64 %v895, %p16
  br i1 %v896, label %head877, label %after878
after878:
  %v897 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes874 ], [ %v893, %head877 ]
  %v898 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes874 ], [ %v894, %head877 ]
  %v899 = getelementptr inbounds float, ptr %v747, i64 %v873
  store <16 x float> %v897, ptr %v899, align 4
  %v900 = getelementptr inbounds float, ptr %v747, i64 %v873
  %v901 = getelementptr inbounds float, ptr %v900, i64 16
  store <16 x float> %v898, ptr %v901, align 4
  br label %no875
no875:
  %v902 = and i64 %v28, 16
  %v903 = icmp ne i64 %v902, 0
  %v904 = and i64 %v28, -32
  %v905 = add nsw i64 %v25, %v904
  br i1 %v903, label %yes906, label %no907
yes906:
  %v908 = getelementptr inbounds float, ptr %v30, i64 %v905
  %v911 = icmp slt i64 0, %p16
  br i1 %v911, label %head909, label %after910
head909:
  %i912 = phi i64 [ 0, %yes906 ], [ %v923, %head909 ]
  %c913 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes906 ], [ %v922, %head909 ]
  %v914 = mul nsw i64 %i912, %p17
  %v915 = mul nsw i64 %i912, %p18
  %v916 = getelementptr inbounds float, ptr %v908, i64 %v915
  %v917 = getelementptr inbounds float, ptr %v745, i64 %v914
  %v918 = load <16 x float>, ptr %v916, align 4
  %v919 = load float, ptr %v917, align 4
  %v920 = insertelement <16 x float> poison, float %v919, i64 0
  %v921 = shufflevector <16 x float> %v920, <16 x float> poison, <16 x i32> zeroinitializer
  %v922 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v921, <16 x float> %v918, <16 x float> %c913)
  %v923 = add nsw i64 %i912, 1
  %v924 = icmp slt i64 %v923, %p16
  br i1 %v924, label %head909, label %after910
after910:
  %v925 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes906 ], [ %v922, %head909 ]
  %v926 = getelementptr inbounds float, ptr %v747, i64 %v905
  store <16 x float> %v925, ptr %v926, align 4
  br label %no907
no907:
  %v927 = and i64 %v28, 15
  %v928 = and i64 %v28, -16
  %v929 = add nsw i64 %v25, %v928
  %v930 = icmp ne i64 %v927, 0
  br i1 %v930, label %yes931, label %no932
yes931:
  %v933 = trunc i64 %v927 to i32
  %v934 = insertelement <16 x i32> poison, i32 %v933, i64 0
  %v935 = shufflevector <16 x i32> %v934, <16 x i32> poison, <16 x i32> zeroinitializer
  %v936 = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v935
  %v937 = getelementptr inbounds float, ptr %v30, i64 %v929
  %v940 = icmp slt i64 0, %p16
  br i1 %v940, label %head938, label %after939
head938:
  %i941 = phi i64 [ 0, %yes931 ], [ %v952, %head938 ]
  %c942 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes931 ], [ %v951, %head938 ]
  %v943 = mul nsw i64 %i941, %p17
  %v944 = mul nsw i64 %i941, %p18
  %v945 = getelementptr inbounds float, ptr %v937, i64 %v944
  %v946 = getelementptr inbounds float, ptr %v745, i64 %v943
  %v947 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v945, i32 4, <16 x i1> %v936, <16 x float> zeroinitializer)
  %v948 = load float, ptr %v946, align 4
  %v949 = insertelement <16 x float> poison, float %v948, i64 0
  %v950 = shufflevector <16 x float> %v949, <16 x float> poison, <16 x i32> zeroinitializer
  %v951 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v950, <16 x float> %v947, <16 x float> %c942)
  %v952 = add nsw i64 %i941, 1
  %v953 = icmp slt i64 %v952, %p16
  br i1 %v953, label %head938, label %after939
after939:
  %v954 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes931 ], [ %v951, %head938 ]
  %v955 = getelementptr inbounds float, ptr %v747, i64 %v929
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v954, ptr %v955, i32 4, <16 x i1> %v936)
  br label %no932
no932:
  br label %no743
no743:
  %v956 = add nsw i64 %i10, 1
  %v957 = icmp slt i64 %v956, %hi
  br i1 %v957, label %head7, label %after8
after8:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

; [15]
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

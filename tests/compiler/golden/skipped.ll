; plan golden  3 kernels, arena 256 bytes
;     0 for 1 groups of 2, inner 17: nonzeros0:int32[1, 1, 48] = where x:float32[2, 17] is not zero  [one thread]
;     1 matmul for batch 1, rows 2, columns 4, inner 17: t1:float32[2, 4] = x:float32[2, 17] · w:float32[17, 4]  at nonzeros0  [one thread]
;     2 for [8]: y@[1] = t1@[1]  [one thread]  | all wait
; []
declare <16 x i32> @llvm.experimental.vector.compress.v16i32(<16 x i32>, <16 x i1>, <16 x i32>)
declare i16 @llvm.ctpop.i16(i16)
define void @kb01ffa7883910c40e3ad2909(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot13 = getelementptr inbounds ptr, ptr %args, i64 0
  %base14 = load ptr, ptr %slot13, align 8
  %slot16 = getelementptr inbounds ptr, ptr %args, i64 1
  %base17 = load ptr, ptr %slot16, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v56, %after29 ]
  %v5 = sdiv i64 %i4, 1
  %v6 = srem i64 %i4, 1
  %v7 = srem i64 %v5, 1
  %v8 = sdiv i64 %v5, 1
  %v9 = mul nsw i64 %v7, 34
  %v10 = mul nsw i64 %v6, 2
  %v11 = mul nsw i64 %v10, 17
  %v12 = add nsw i64 %v9, %v11
  %v15 = getelementptr inbounds i32, ptr %base14, i64 %v12
  %v18 = mul nsw i64 %i4, 48
  %v19 = getelementptr inbounds i32, ptr %base17, i64 %v18
  %v20 = getelementptr inbounds i32, ptr %v15, i64 17
  %v21 = load <16 x i32>, ptr %v15, align 4
  %v22 = load <16 x i32>, ptr %v20, align 4
  %v23 = or <16 x i32> %v21, %v22
  %v24 = icmp ne <16 x i32> %v23, zeroinitializer
  %v25 = bitcast <16 x i1> %v24 to i16
  %v26 = icmp eq i16 %v25, -1
  br i1 %v26, label %yes27, label %no28
yes27:
  store i32 -1, ptr %v19, align 4
  br label %after29
no28:
  %v30 = getelementptr inbounds i32, ptr %v19, i64 16
  %v31 = getelementptr inbounds i32, ptr %v15, i64 17
  %v32 = load <16 x i32>, ptr %v15, align 4
  %v33 = load <16 x i32>, ptr %v31, align 4
  %v34 = or <16 x i32> %v32, %v33
  %v35 = icmp ne <16 x i32> %v34, zeroinitializer
  %v36 = bitcast <16 x i1> %v35 to i16
  %v37 = insertelement <16 x i64> poison, i64 0, i64 0
  %v38 = shufflevector <16 x i64> %v37, <16 x i64> poison, <16 x i32> zeroinitializer
  %v39 = add <16 x i64> %v38, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>
  %v40 = trunc <16 x i64> %v39 to <16 x i32>
  %v41 = bitcast i16 %v36 to <16 x i1>
  %v42 = call <16 x i32> @llvm.experimental.vector.compress.v16i32(<16 x i32> %v40, <16 x i1> %v41, <16 x i32> poison)
  store <16 x i32> %v42, ptr %v30, align 4
  %v43 = call i16 @llvm.ctpop.i16(i16 %v36)
  %v44 = zext i16 %v43 to i64
  %v45 = getelementptr inbounds i32, ptr %v30, i64 %v44
  %v46 = trunc i64 16 to i32
  store i32 %v46, ptr %v45, align 4
  %v47 = getelementptr inbounds i32, ptr %v15, i64 16
  %v48 = getelementptr inbounds i32, ptr %v47, i64 17
  %v49 = load i32, ptr %v47, align 4
  %v50 = load i32, ptr %v48, align 4
  %v51 = or i32 %v49, %v50
  %v52 = icmp ne i32 %v51, 0
  %v53 = zext i1 %v52 to i64
  %v54 = add nsw i64 %v44, %v53
  %v55 = trunc i64 %v54 to i32
  store i32 %v55, ptr %v19, align 4
  br label %after29
after29:
  %v56 = add nsw i64 %i4, 1
  %v57 = icmp slt i64 %v56, %hi
  br i1 %v57, label %head1, label %after2
after2:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

; []
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
define void @k73708c614f6a445cd829c7e6(ptr noalias %args, i64 %lo, i64 %hi) #0 {
entry:
  %slot17 = getelementptr inbounds ptr, ptr %args, i64 0
  %base18 = load ptr, ptr %slot17, align 8
  %slot24 = getelementptr inbounds ptr, ptr %args, i64 1
  %base25 = load ptr, ptr %slot24, align 8
  %slot33 = getelementptr inbounds ptr, ptr %args, i64 2
  %base34 = load ptr, ptr %slot33, align 8
  %slot36 = getelementptr inbounds ptr, ptr %args, i64 3
  %base37 = load ptr, ptr %slot36, align 8
  %slot76 = getelementptr inbounds ptr, ptr %args, i64 4
  %base77 = load ptr, ptr %slot76, align 8
  %v3 = icmp slt i64 %lo, %hi
  br i1 %v3, label %head1, label %after2
head1:
  %i4 = phi i64 [ %lo, %entry ], [ %v107, %no14 ]
  %v5 = sdiv i64 %i4, 1
  %v6 = srem i64 %i4, 1
  %v7 = mul nsw i64 %v5, 34
  %v8 = mul nsw i64 %v5, 8
  %v9 = mul nsw i64 %v6, 16
  %v10 = icmp sge i64 %v6, 0
  %v11 = icmp slt i64 %v6, 1
  %v12 = and i1 %v10, %v11
  br i1 %v12, label %yes13, label %no14
yes13:
  %v15 = sdiv i64 0, 2
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
  %v39 = sdiv i64 0, 2
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
  %i52 = phi i64 [ 0, %yes30 ], [ %v71, %head49 ]
  %c53 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v65, %head49 ]
  %c54 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v70, %head49 ]
  %v55 = getelementptr inbounds i32, ptr %v46, i64 %i52
  %v56 = load i32, ptr %v55, align 4
  %v57 = zext i32 %v56 to i64
  %v58 = getelementptr inbounds float, ptr %v35, i64 %v57
  %v59 = mul nsw i64 %v57, 4
  %v60 = getelementptr inbounds float, ptr %v38, i64 %v59
  %v61 = load <4 x float>, ptr %v60, align 4
  %v62 = load float, ptr %v58, align 4
  %v63 = insertelement <4 x float> poison, float %v62, i64 0
  %v64 = shufflevector <4 x float> %v63, <4 x float> poison, <4 x i32> zeroinitializer
  %v65 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v64, <4 x float> %v61, <4 x float> %c53)
  %v66 = getelementptr inbounds float, ptr %v58, i64 17
  %v67 = load float, ptr %v66, align 4
  %v68 = insertelement <4 x float> poison, float %v67, i64 0
  %v69 = shufflevector <4 x float> %v68, <4 x float> poison, <4 x i32> zeroinitializer
  %v70 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v69, <4 x float> %v61, <4 x float> %c54)
  %v71 = add nsw i64 %i52, 1
  %v72 = icmp slt i64 %v71, %v48
  br i1 %v72, label %head49, label %after50
after50:
  %v73 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v65, %head49 ]
  %v74 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %yes30 ], [ %v70, %head49 ]
  %v75 = add nsw i64 %v8, %v9
  %v78 = getelementptr inbounds float, ptr %base77, i64 %v75
  store <4 x float> %v73, ptr %v78, align 4
  %v79 = add nsw i64 %v75, 4
  %v80 = getelementptr inbounds float, ptr %base77, i64 %v79
  store <4 x float> %v74, ptr %v80, align 4
  br label %after32
no31:
  %v81 = getelementptr inbounds float, ptr %base34, i64 %v7
  %v82 = getelementptr inbounds float, ptr %base37, i64 %v9
  br label %head83
head83:
  %i85 = phi i64 [ 0, %no31 ], [ %v101, %head83 ]
  %c86 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %no31 ], [ %v95, %head83 ]
  %c87 = phi <4 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %no31 ], [ %v100, %head83 ]
  %v88 = getelementptr inbounds float, ptr %v81, i64 %i85
  %v89 = mul nsw i64 %i85, 4
  %v90 = getelementptr inbounds float, ptr %v82, i64 %v89
  %v91 = load <4 x float>, ptr %v90, align 4
  %v92 = load float, ptr %v88, align 4
  %v93 = insertelement <4 x float> poison, float %v92, i64 0
  %v94 = shufflevector <4 x float> %v93, <4 x float> poison, <4 x i32> zeroinitializer
  %v95 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v94, <4 x float> %v91, <4 x float> %c86)
  %v96 = getelementptr inbounds float, ptr %v88, i64 17
  %v97 = load float, ptr %v96, align 4
  %v98 = insertelement <4 x float> poison, float %v97, i64 0
  %v99 = shufflevector <4 x float> %v98, <4 x float> poison, <4 x i32> zeroinitializer
  %v100 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v99, <4 x float> %v91, <4 x float> %c87)
  %v101 = add nsw i64 %i85, 1
  %v102 = icmp slt i64 %v101, 17
  br i1 %v102, label %head83, label %after84
after84:
  %v103 = add nsw i64 %v8, %v9
  %v104 = getelementptr inbounds float, ptr %base77, i64 %v103
  store <4 x float> %v95, ptr %v104, align 4
  %v105 = add nsw i64 %v103, 4
  %v106 = getelementptr inbounds float, ptr %base77, i64 %v105
  store <4 x float> %v100, ptr %v106, align 4
  br label %after32
after32:
  br label %no14
no14:
  %v107 = add nsw i64 %i4, 1
  %v108 = icmp slt i64 %v107, %hi
  br i1 %v108, label %head1, label %after2
after2:
  ret void
}
attributes #0 = { nounwind }
!0 = !{}

; [8]
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

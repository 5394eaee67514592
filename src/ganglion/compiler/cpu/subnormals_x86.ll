declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define i64 @flush_subnormals(i64 %wanted) #0 {
  %place = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %old = load i32, ptr %place, align 4
  ; 0x8040: results that are subnormal become zero, and so do operands.
  %set = or i32 %old, 32832
  %cleared = and i32 %old, -32833
  %wants = icmp ne i64 %wanted, 0
  %new = select i1 %wants, i32 %set, i32 %cleared
  store i32 %new, ptr %place, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  %before = icmp eq i32 %old, %set
  %flushed = zext i1 %before to i64
  ret i64 %flushed
}

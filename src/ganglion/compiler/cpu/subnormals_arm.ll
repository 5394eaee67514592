declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define i64 @flush_subnormals(i64 %wanted) #0 {
  %old = call i64 @llvm.aarch64.get.fpcr()
  ; Bit 24: subnormal operands and results become zero.
  %set = or i64 %old, 16777216
  %cleared = and i64 %old, -16777217
  %wants = icmp ne i64 %wanted, 0
  %new = select i1 %wants, i64 %set, i64 %cleared
  call void @llvm.aarch64.set.fpcr(i64 %new)
  %before = icmp eq i64 %old, %set
  %flushed = zext i1 %before to i64
  ret i64 %flushed
}

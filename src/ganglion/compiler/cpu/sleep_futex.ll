declare i64 @syscall(i64, ...)

define internal void @rest(ptr %word, i32 %old, ptr %sleepers) #0 {
  %a = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %o = zext i32 %old to i64
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i64 %o, ptr null)
  %s = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  ret void
}

define internal void @wake(ptr %word) #0 {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i64 2147483647)
  ret void
}

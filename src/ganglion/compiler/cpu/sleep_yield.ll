declare i32 @$yield_function()

define internal void @rest(ptr %word, i32 %old, ptr %sleepers) #0 {
  %ignored = call i32 @$yield_function()
  ret void
}

define internal void @wake(ptr %word) #0 {
  ret void
}

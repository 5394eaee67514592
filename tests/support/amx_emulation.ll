; What AMX does, for processors that do not have it: functions with the names
; that code is given then. One thread at a time has the tiles, until it releases them.
; Whatever a processor would refuse ends in a trap.

declare void @llvm.trap()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.fabs.f32(float)
declare i32 @sched_yield()

@amx.tiles = internal global [8 x [1024 x i8]] zeroinitializer, align 64
@amx.shapes = internal global [64 x i8] zeroinitializer, align 64
@amx.taken = internal global i32 0

define internal void @amx.require(i1 %fits) {
  br i1 %fits, label %good, label %bad
bad:
  call void @llvm.trap()
  unreachable
good:
  ret void
}

define internal void @$configure(ptr %shapes) {
  br label %wait
wait:
  %pair = cmpxchg ptr @amx.taken, i32 0, i32 1 seq_cst seq_cst
  %free = extractvalue { i32, i1 } %pair, 1
  br i1 %free, label %take, label %sleep
sleep:
  call i32 @sched_yield()
  br label %wait
take:
  call void @llvm.memcpy.p0.p0.i64(ptr @amx.shapes, ptr %shapes, i64 64, i1 false)
  call void @llvm.memset.p0.i64(ptr @amx.tiles, i8 0, i64 8192, i1 false)
  %palette = load i8, ptr @amx.shapes
  %known = icmp eq i8 %palette, 1
  call void @amx.require(i1 %known)
  ret void
}

define internal void @$release() {
  %taken = load i32, ptr @amx.taken
  %ours = icmp eq i32 %taken, 1
  call void @amx.require(i1 %ours)
  call void @llvm.memset.p0.i64(ptr @amx.shapes, i8 0, i64 64, i1 false)
  store atomic i32 0, ptr @amx.taken seq_cst, align 4
  ret void
}

define internal i64 @amx.rows(i8 %tile) {
  %wide = zext i8 %tile to i64
  %number = add i64 %wide, 48
  %at = getelementptr i8, ptr @amx.shapes, i64 %number
  %short = load i8, ptr %at
  %rows = zext i8 %short to i64
  %some = icmp ugt i64 %rows, 0
  call void @amx.require(i1 %some)
  %few = icmp ule i64 %rows, 16
  call void @amx.require(i1 %few)
  ret i64 %rows
}

define internal i64 @amx.bytes(i8 %tile) {
  %wide = zext i8 %tile to i64
  %number = add i64 %wide, 8
  %at = getelementptr i16, ptr @amx.shapes, i64 %number
  %short = load i16, ptr %at
  %bytes = zext i16 %short to i64
  %some = icmp ugt i64 %bytes, 0
  call void @amx.require(i1 %some)
  %few = icmp ule i64 %bytes, 64
  call void @amx.require(i1 %few)
  ret i64 %bytes
}

define internal ptr @amx.row(i8 %tile, i64 %row) {
  %wide = zext i8 %tile to i64
  %at = getelementptr [1024 x i8], ptr @amx.tiles, i64 %wide, i64 0
  %start = mul i64 %row, 64
  %line = getelementptr i8, ptr %at, i64 %start
  ret ptr %line
}

define internal void @$zero(i8 %tile) {
  %rows = call i64 @amx.rows(i8 %tile)
  %at = call ptr @amx.row(i8 %tile, i64 0)
  call void @llvm.memset.p0.i64(ptr %at, i8 0, i64 1024, i1 false)
  ret void
}

define internal void @$load(i8 %tile, ptr %from, i64 %stride) {
entry:
  call void @$zero(i8 %tile)
  %rows = call i64 @amx.rows(i8 %tile)
  %bytes = call i64 @amx.bytes(i8 %tile)
  br label %each
each:
  %row = phi i64 [ 0, %entry ], [ %next, %each ]
  %to = call ptr @amx.row(i8 %tile, i64 %row)
  %start = mul i64 %row, %stride
  %source = getelementptr i8, ptr %from, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %source, i64 %bytes, i1 false)
  %next = add i64 %row, 1
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %each, label %end
end:
  ret void
}

define internal void @$store(i8 %tile, ptr %to, i64 %stride) {
entry:
  %rows = call i64 @amx.rows(i8 %tile)
  %bytes = call i64 @amx.bytes(i8 %tile)
  br label %each
each:
  %row = phi i64 [ 0, %entry ], [ %next, %each ]
  %from = call ptr @amx.row(i8 %tile, i64 %row)
  %start = mul i64 %row, %stride
  %target = getelementptr i8, ptr %to, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %from, i64 %bytes, i1 false)
  %next = add i64 %row, 1
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %each, label %end
end:
  ret void
}

; Numbers below 2^-126 count as zero.
define internal float @amx.flushed(float %x) {
  %size = call float @llvm.fabs.f32(float %x)
  %tiny = fcmp olt float %size, 0x3810000000000000
  %y = select i1 %tiny, float 0.0, float %x
  ret float %y
}

define internal float @amx.element(i32 %pair, i1 %second) {
  %low = shl i32 %pair, 16
  %high = and i32 %pair, -65536
  %bits = select i1 %second, i32 %high, i32 %low
  %x = bitcast i32 %bits to float
  %y = call float @amx.flushed(float %x)
  ret float %y
}

define internal float @amx.added(float %sum, i32 %a, i32 %b, i1 %second) {
  %x = call float @amx.element(i32 %a, i1 %second)
  %y = call float @amx.element(i32 %b, i1 %second)
  %z = call float @llvm.fma.f32(float %x, float %y, float %sum)
  %new = call float @amx.flushed(float %z)
  ret float %new
}

; Two sums, of even and of odd elements, which are added to the one that is there.
define internal void @$dot(i8 %c, i8 %a, i8 %b) {
entry:
  %rows = call i64 @amx.rows(i8 %c)
  %rows.a = call i64 @amx.rows(i8 %a)
  %rows.b = call i64 @amx.rows(i8 %b)
  %bytes = call i64 @amx.bytes(i8 %c)
  %bytes.a = call i64 @amx.bytes(i8 %a)
  %bytes.b = call i64 @amx.bytes(i8 %b)
  %pairs = lshr i64 %bytes.a, 2
  %columns = lshr i64 %bytes, 2
  %high = icmp eq i64 %rows, %rows.a
  call void @amx.require(i1 %high)
  %deep = icmp eq i64 %pairs, %rows.b
  call void @amx.require(i1 %deep)
  %wide = icmp eq i64 %bytes, %bytes.b
  call void @amx.require(i1 %wide)
  br label %row
row:
  %m = phi i64 [ 0, %entry ], [ %m.next, %row.end ]
  %line.a = call ptr @amx.row(i8 %a, i64 %m)
  %line.c = call ptr @amx.row(i8 %c, i64 %m)
  br label %column
column:
  %n = phi i64 [ 0, %row ], [ %n.next, %column.end ]
  br label %pair
pair:
  %k = phi i64 [ 0, %column ], [ %k.next, %pair ]
  %even = phi float [ 0.0, %column ], [ %even.new, %pair ]
  %odd = phi float [ 0.0, %column ], [ %odd.new, %pair ]
  %line.b = call ptr @amx.row(i8 %b, i64 %k)
  %at.a = getelementptr i32, ptr %line.a, i64 %k
  %at.b = getelementptr i32, ptr %line.b, i64 %n
  %pair.a = load i32, ptr %at.a
  %pair.b = load i32, ptr %at.b
  %even.new = call float @amx.added(float %even, i32 %pair.a, i32 %pair.b, i1 false)
  %odd.new = call float @amx.added(float %odd, i32 %pair.a, i32 %pair.b, i1 true)
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %pairs
  br i1 %k.more, label %pair, label %column.end
column.end:
  %both = fadd float %even.new, %odd.new
  %at.c = getelementptr float, ptr %line.c, i64 %n
  %old = load float, ptr %at.c
  %sum = fadd float %old, %both
  store float %sum, ptr %at.c
  %n.next = add i64 %n, 1
  %n.more = icmp ult i64 %n.next, %columns
  br i1 %n.more, label %column, label %row.end
row.end:
  %m.next = add i64 %m, 1
  %m.more = icmp ult i64 %m.next, %rows
  br i1 %m.more, label %row, label %end
end:
  ret void
}

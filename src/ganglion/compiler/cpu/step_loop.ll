declare void @$pause_declaration
$sleep
; Numbers below the normal range, such as momenta of weights that no longer change, take
; a processor up to a hundred times as long: while kernels run, they are zero. Each thread
; has a mode of its own; the caller's is as before when a job is done.
$subnormals
define internal i1 @until_changed(ptr %word, i32 %old, ptr %sleepers, i64 %spins) #0 {
entry:
  br label %look
look:
  %tries = phi i64 [ 0, %entry ], [ %more, %spin ], [ %tries, %rest ]
  %seen = load atomic i32, ptr %word acquire, align 4
  %moved = icmp ne i32 %seen, %old
  br i1 %moved, label %done, label %again
again:
  %tired = icmp sge i64 %tries, %spins
  br i1 %tired, label %rest, label %spin
spin:
  %more = add i64 %tries, 1
  call void @$pause
  br label %look
rest:
  call void @rest(ptr %word, i32 %old, ptr %sleepers)
  br label %look
done:
  %slept = icmp sge i64 %tries, %spins
  ret i1 %slept
}

define internal void @change(ptr %word, i32 %new, ptr %sleepers) #0 {
  %was = atomicrmw xchg ptr %word, i32 %new seq_cst
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp sgt i32 %asleep, 0
  br i1 %some, label %wake, label %done
wake:
  call void @wake(ptr %word)
  br label %done
done:
  ret void
}

; A barrier: threads arrive at the counter of their group of four, the last of a group at
; the root's, and the last of all opens the round: few threads contend for a cache line.
; Who had to sleep spins for less the next time, who had not for longer: on a crowded
; machine the others are not running, and a spinning thread only keeps them from it.
define internal void @meet(ptr %bar, i64 %thread, i64 %threads, ptr %patience, i64 %most) #0 {
entry:
  %round = getelementptr inbounds i8, ptr %bar, i64 64
  %sleepers = getelementptr inbounds i8, ptr %bar, i64 128
  %now = load atomic i32, ptr %round acquire, align 4
  %group = lshr i64 %thread, 2
  %group.first = shl i64 %group, 2
  %behind = sub i64 %threads, %group.first
  %short = icmp ult i64 %behind, 4
  %members = select i1 %short, i64 %behind, i64 4
  %group.line = add i64 %group, 3
  %counter = getelementptr inbounds [64 x i8], ptr %bar, i64 %group.line
  %completes = call i1 @is_last(ptr %counter, i64 %members)
  br i1 %completes, label %root, label %wait
root:
  %rounded = add i64 %threads, 3
  %groups = lshr i64 %rounded, 2
  %last = call i1 @is_last(ptr %bar, i64 %groups)
  br i1 %last, label %open, label %wait
open:
  %next = add i32 %now, 1
  call void @change(ptr %round, i32 %next, ptr %sleepers)
  ret void
wait:
  %spins = load i64, ptr %patience, align 8
  %slept = call i1 @until_changed(ptr %round, i32 %now, ptr %sleepers, i64 %spins)
  %less = lshr i64 %spins, 2
  %fewest = lshr i64 %most, 5
  %few = icmp ult i64 %less, %fewest
  %lower = select i1 %few, i64 %fewest, i64 %less
  %more = shl i64 %spins, 1
  %many = icmp ugt i64 %more, %most
  %higher = select i1 %many, i64 %most, i64 %more
  %next.spins = select i1 %slept, i64 %lower, i64 %higher
  store i64 %next.spins, ptr %patience, align 8
  ret void
}

; Count an arrival; the last of so many resets the counter: nobody comes back to it
; before the round is open.
define internal i1 @is_last(ptr %counter, i64 %members) #0 {
  %before = atomicrmw add ptr %counter, i32 1 acq_rel
  %n = trunc i64 %members to i32
  %others = sub i32 %n, 1
  %last = icmp eq i32 %before, %others
  br i1 %last, label %reset, label %done
reset:
  store atomic i32 0, ptr %counter monotonic, align 4
  br label %done
done:
  ret i1 %last
}

; Run the records behind this one on every slice that nobody else has taken.
define internal void @share(ptr %at, i64 %thread, i64 %step) #0 {
entry:
  %at1 = getelementptr inbounds i64, ptr %at, i64 1
  %ranges = load ptr, ptr %at1, align 8
  %at2 = getelementptr inbounds i64, ptr %at, i64 2
  %members = load i64, ptr %at2, align 8
  %at3 = getelementptr inbounds i64, ptr %at, i64 3
  %threads = load i64, ptr %at3, align 8
  %first.member = getelementptr inbounds [5 x i64], ptr %at, i64 1
  %last.member = getelementptr inbounds [5 x i64], ptr %first.member, i64 %members
  br label %owner
owner:
  %tried = phi i64 [ 0, %entry ], [ %tried.next, %owner.end ]
  %sum = add i64 %thread, %tried
  %whose = urem i64 %sum, %threads
  %range = getelementptr inbounds [8 x i64], ptr %ranges, i64 %whose
  %range1 = getelementptr inbounds i64, ptr %range, i64 1
  %first = load i64, ptr %range1, align 8
  %range2 = getelementptr inbounds i64, ptr %range, i64 2
  %count = load i64, ptr %range2, align 8
  ; In each step every thread finds the range empty once: tickets are never taken back.
  %per.step = add i64 %count, %threads
  %before = mul i64 %step, %per.step
  br label %take
take:
  %ticket = atomicrmw add ptr %range, i64 1 monotonic
  %number = sub i64 %ticket, %before
  %left = icmp slt i64 %number, %count
  br i1 %left, label %slice, label %owner.end
slice:
  %index = add i64 %first, %number
  %index.next = add i64 %index, 1
  br label %member
member:
  %m = phi ptr [ %first.member, %slice ], [ %m.next, %run ]
  %function = load ptr, ptr %m, align 8
  %m1 = getelementptr inbounds i64, ptr %m, i64 1
  %args = load ptr, ptr %m1, align 8
  %m2 = getelementptr inbounds i64, ptr %m, i64 2
  %size = load i64, ptr %m2, align 8
  %m3 = getelementptr inbounds i64, ptr %m, i64 3
  %end = load i64, ptr %m3, align 8
  %lo = mul i64 %index, %size
  %up = mul i64 %index.next, %size
  %over = icmp sgt i64 %up, %end
  %hi = select i1 %over, i64 %end, i64 %up
  %m4 = getelementptr inbounds i64, ptr %m, i64 4
  %moves = load ptr, ptr %m4, align 8
  %still = icmp eq ptr %moves, null
  br i1 %still, label %run, label %moving
moving:
  %count.moves = load i64, ptr %moves, align 8
  %first.move = getelementptr inbounds i64, ptr %moves, i64 1
  %last.move = getelementptr inbounds [3 x i64], ptr %first.move, i64 %count.moves
  br label %move
move:
  %v = phi ptr [ %first.move, %moving ], [ %v.next, %move ]
  %slot = load i64, ptr %v, align 8
  %v1 = getelementptr inbounds i64, ptr %v, i64 1
  %base = load i64, ptr %v1, align 8
  %v2 = getelementptr inbounds i64, ptr %v, i64 2
  %each = load i64, ptr %v2, align 8
  %back = mul i64 %index, %each
  %here = sub i64 %base, %back
  %place = getelementptr inbounds i64, ptr %args, i64 %slot
  store i64 %here, ptr %place, align 8
  %v.next = getelementptr inbounds [3 x i64], ptr %v, i64 1
  %v.more = icmp ult ptr %v.next, %last.move
  br i1 %v.more, label %move, label %run
run:
  call void %function(ptr %args, i64 %lo, i64 %hi)
  %m.next = getelementptr inbounds [5 x i64], ptr %m, i64 1
  %more = icmp ult ptr %m.next, %last.member
  br i1 %more, label %member, label %take
owner.end:
  %tried.next = add i64 %tried, 1
  %others = icmp slt i64 %tried.next, %threads
  br i1 %others, label %owner, label %done
done:
  ret void
}

define void @execute(ptr %job, i64 %thread) #0 {
entry:
  %flushed = call i64 @flush_subnormals(i64 1)
  %steps = load i64, ptr %job, align 8
  %job1 = getelementptr inbounds i64, ptr %job, i64 1
  %threads = load i64, ptr %job1, align 8
  %job2 = getelementptr inbounds i64, ptr %job, i64 2
  %bar = load ptr, ptr %job2, align 8
  %job3 = getelementptr inbounds i64, ptr %job, i64 3
  %spins = load i64, ptr %job3, align 8
  %patience = alloca i64, align 8
  store i64 %spins, ptr %patience, align 8
  %mine.word = mul i64 %thread, 5
  %mine.at = add i64 %mine.word, 4
  %mine = getelementptr inbounds i64, ptr %job, i64 %mine.at
  %tape = load ptr, ptr %mine, align 8
  %mine1 = getelementptr inbounds i64, ptr %mine, i64 1
  %count = load i64, ptr %mine1, align 8
  %mine2 = getelementptr inbounds i64, ptr %mine, i64 2
  %moving = load ptr, ptr %mine2, align 8
  %mine3 = getelementptr inbounds i64, ptr %mine, i64 3
  %cursors = load i64, ptr %mine3, align 8
  %mine4 = getelementptr inbounds i64, ptr %mine, i64 4
  %fewer = load i64, ptr %mine4, align 8
  %own.steps = sub i64 %steps, %fewer
  %end = getelementptr inbounds [5 x i64], ptr %tape, i64 %count
  %has.cursors = icmp sgt i64 %cursors, 0
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ %s.next, %step.end ]
  br label %record
record:
  %at = phi ptr [ %tape, %step ], [ %at.next, %record.end ]
  %function = load ptr, ptr %at, align 8
  %at1 = getelementptr inbounds i64, ptr %at, i64 1
  %args = load ptr, ptr %at1, align 8
  %at2 = getelementptr inbounds i64, ptr %at, i64 2
  %hi = load i64, ptr %at2, align 8
  %at3 = getelementptr inbounds i64, ptr %at, i64 3
  %lo = load i64, ptr %at3, align 8
  %some = icmp ne ptr %function, null
  br i1 %some, label %call, label %no.call
call:
  call void %function(ptr %args, i64 %lo, i64 %hi)
  br label %called
no.call:
  %slices = icmp ne ptr %args, null
  br i1 %slices, label %share, label %called
share:
  call void @share(ptr %at, i64 %thread, i64 %s)
  br label %called
called:
  %members = phi i64 [ 0, %call ], [ 0, %no.call ], [ %hi, %share ]
  %at4 = getelementptr inbounds i64, ptr %at, i64 4
  %meets = load i64, ptr %at4, align 8
  %waits = icmp ne i64 %meets, 0
  br i1 %waits, label %barrier, label %record.end
barrier:
  call void @meet(ptr %bar, i64 %thread, i64 %threads, ptr %patience, i64 %spins)
  br label %record.end
record.end:
  %passed = add i64 %members, 1
  %at.next = getelementptr inbounds [5 x i64], ptr %at, i64 %passed
  %r.more = icmp ult ptr %at.next, %end
  br i1 %r.more, label %record, label %move
move:
  br i1 %has.cursors, label %cursor, label %step.end
cursor:
  %m = phi i64 [ 0, %move ], [ %m.next, %cursor ]
  %m.word = mul i64 %m, 2
  %m.at = getelementptr inbounds i64, ptr %moving, i64 %m.word
  %slot = load ptr, ptr %m.at, align 8
  %m.by = getelementptr inbounds i64, ptr %m.at, i64 1
  %by = load i64, ptr %m.by, align 8
  %old = load i64, ptr %slot, align 8
  %new = add i64 %old, %by
  store i64 %new, ptr %slot, align 8
  %m.next = add i64 %m, 1
  %m.more = icmp slt i64 %m.next, %cursors
  br i1 %m.more, label %cursor, label %step.end
step.end:
  %s.next = add i64 %s, 1
  %s.more = icmp slt i64 %s.next, %own.steps
  br i1 %s.more, label %step, label %finish
finish:
  ; The pointers of the next run are written when this returns: all have moved theirs.
  %shared = icmp sgt i64 %threads, 1
  br i1 %shared, label %last, label %done
last:
  call void @meet(ptr %bar, i64 %thread, i64 %threads, ptr %patience, i64 %spins)
  br label %done
done:
  %as.before = call i64 @flush_subnormals(i64 %flushed)
  ret void
}

define void @alone(ptr %job) #0 {
  call void @execute(ptr %job, i64 0)
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Run commands of four words, an operation and what it works on; return how many were run.
; 0: a job, so many steps. 1: copy so many bytes from one address to another. 2: add to a
; number of 32 bits. 3: end here if a number of 32 bits is positive.
define i64 @script(ptr %commands, i64 %count) #0 {
entry:
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %next, %ran ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %command, label %done
command:
  %next = add i64 %n, 1
  %at = getelementptr inbounds [4 x i64], ptr %commands, i64 %n
  %operation = load i64, ptr %at, align 8
  %at1 = getelementptr inbounds i64, ptr %at, i64 1
  %address = load ptr, ptr %at1, align 8
  %at2 = getelementptr inbounds i64, ptr %at, i64 2
  %number = load i64, ptr %at2, align 8
  %at3 = getelementptr inbounds i64, ptr %at, i64 3
  %size = load i64, ptr %at3, align 8
  switch i64 %operation, label %test [
    i64 0, label %run
    i64 1, label %copy
    i64 2, label %increase
  ]
run:
  store i64 %number, ptr %address, align 8
  call void @execute(ptr %address, i64 0)
  br label %ran
copy:
  %target = inttoptr i64 %number to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %address, i64 %size, i1 false)
  br label %ran
increase:
  %old = load i32, ptr %address, align 4
  %by = trunc i64 %number to i32
  %new = add i32 %old, %by
  store i32 %new, ptr %address, align 4
  br label %ran
test:
  %flag = load i32, ptr %address, align 4
  %positive = icmp sgt i32 %flag, 0
  br i1 %positive, label %end, label %ran
ran:
  br label %look
end:
  ret i64 %next
done:
  ret i64 %n
}

; Every helper has a mailbox, a cache line of its own: round, sleepers, job. So a job wakes
; those that have a part in it and no others.
define void @lead(ptr %mailboxes, ptr %job, i64 %helpers) #0 {
entry:
  %any = icmp sgt i64 %helpers, 0
  br i1 %any, label %post, label %posted
post:
  %h = phi i64 [ 0, %entry ], [ %h.next, %post ]
  %box = getelementptr inbounds [64 x i8], ptr %mailboxes, i64 %h
  %sleepers = getelementptr inbounds i8, ptr %box, i64 4
  %place = getelementptr inbounds i8, ptr %box, i64 8
  store ptr %job, ptr %place, align 8
  %now = load atomic i32, ptr %box monotonic, align 4
  %next = add i32 %now, 1
  call void @change(ptr %box, i32 %next, ptr %sleepers)
  %h.next = add i64 %h, 1
  %h.more = icmp slt i64 %h.next, %helpers
  br i1 %h.more, label %post, label %posted
posted:
  %none = icmp eq ptr %job, null
  br i1 %none, label %done, label %work
work:
  call void @execute(ptr %job, i64 0)
  br label %done
done:
  ret void
}

define void @serve(ptr %mailbox, i64 %thread, i64 %spins) #0 {
entry:
  %sleepers = getelementptr inbounds i8, ptr %mailbox, i64 4
  %place = getelementptr inbounds i8, ptr %mailbox, i64 8
  br label %next
next:
  ; Rounds are counted from zero: a job that was given before this thread began counts.
  %seen = phi i32 [ 0, %entry ], [ %round, %work ]
  %slept = call i1 @until_changed(ptr %mailbox, i32 %seen, ptr %sleepers, i64 %spins)
  %round = load atomic i32, ptr %mailbox acquire, align 4
  %job = load ptr, ptr %place, align 8
  %none = icmp eq ptr %job, null
  br i1 %none, label %done, label %work
work:
  call void @execute(ptr %job, i64 %thread)
  br label %next
done:
  ret void
}
attributes #0 = { nounwind }

// A GPU of one block at a time, emulated on a CPU: every thread is a fibre, and barriers
// switch between them. Only a block that waits for others lets them run in between.
// Stands above the backend's CUDA text instead of `machine.cuh`; g++ makes code of it
// again for every text, and so it does without C++'s library.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#define TENSOR_CORES
#define METHOD inline
#define DEVICE static inline
#define RESTRICT __restrict__
#define __global__
#define __launch_bounds__(...)
#define THREAD emulated_thread
#define BLOCK emulated_block
#define MODEL emulated_model
#define BLOCKS emulated_blocks
#define MODELS emulated_models
#define BARRIER wait_at(emulated_all)

// Kernels are left as they are; what they call most often is worth optimising.
#pragma GCC push_options
#pragma GCC optimize("O1")
static int emulated_thread, emulated_model, emulated_shared;
static int emulated_blocks, emulated_models;

extern "C" void switch_stack(void** old, void* fresh);
asm(R"(
.globl switch_stack
.type switch_stack, @function
switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

struct Barrier {
  int arrived = 0, expected = 0, round = 0;
};
static const size_t fibre_room = 128 * 1024, shared_room = 256 * 1024;
struct EmulatedBlock {
  int number = 0, left = 0;
  bool waits = false;  // for other blocks
  EmulatedBlock* next = nullptr;  // in its queue
  Barrier all, warps[32];
  void* tops[THREADS];
  bool done[THREADS];
  unsigned char *stacks, *room, *shared;
};
struct Queue {
  EmulatedBlock *first = nullptr, *last = nullptr;
  void push(EmulatedBlock* block) {
    block->next = nullptr;
    (first ? last->next : first) = block;
    last = block;
  }
  EmulatedBlock* pop() {
    EmulatedBlock* block = first;
    first = block->next;
    return block;
  }
};
typedef void (*Work)(void** arguments);
static EmulatedBlock* live;
#define emulated_block live->number
#define emulated_all live->all
#define emulated_warps live->warps
#define fibre_tops live->tops
#define fibre_done live->done
#define shared_bytes live->shared
static void* main_top;
static Work fibre_work;
static void** fibre_arguments;

static void leave_fibre() {
  const int me = emulated_thread;
  switch_stack(&fibre_tops[me], main_top);
  emulated_thread = me;
}
static void wait_at(Barrier& barrier) {
  const int round = barrier.round;
  if (++barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    barrier.round++;
    return;
  }
  while (barrier.round == round) leave_fibre();
}
static void leave(Barrier& barrier) {
  barrier.expected--;
  if (barrier.expected > 0 && barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    barrier.round++;
  }
}
extern "C" void fibre_main() {
  fibre_work(fibre_arguments);
  const int me = emulated_thread;
  fibre_done[me] = true;
  leave(emulated_all);
  leave(emulated_warps[me / 32]);
  void* unused;
  switch_stack(&unused, main_top);
  abort();
}
static void begin_block(int number) {
  live->number = number;
  live->left = THREADS;
  // Behind a launch's shared memory is none: what is read there is a fault, as on a GPU.
  const size_t used = (emulated_shared + 127) / 128 * 128;
  live->shared = live->room + shared_room - used;
  memset(shared_bytes, 0xFF, used);  // what nobody wrote shows
  emulated_all = Barrier();
  emulated_all.expected = THREADS;
  for (int warp = 0; warp < THREADS / 32; warp++) {
    emulated_warps[warp] = Barrier();
    emulated_warps[warp].expected = 32;
  }
  for (int i = 0; i < THREADS; i++) {
    uintptr_t* top = (uintptr_t*)(live->stacks + fibre_room * (i + 1));
    *--top = 0;  // the stack is aligned as after a call
    *--top = (uintptr_t)fibre_main;
    for (int j = 0; j < 6; j++) *--top = 0;
    fibre_tops[i] = top;
    fibre_done[i] = false;
  }
}
// Runs the fibres of a block in turn, until all are done or it waits for other blocks.
static void advance_block() {
  do {
    live->waits = false;
    for (int i = 0; i < THREADS; i++) {
      if (fibre_done[i]) continue;
      emulated_thread = i;
      switch_stack(&main_top, fibre_tops[i]);
      live->left -= fibre_done[i];
    }
  } while (live->left > 0 && !live->waits);
}
static Queue idle;
static EmulatedBlock* new_block() {
  EmulatedBlock* block = (EmulatedBlock*)malloc(sizeof(EmulatedBlock));
  block->stacks = (unsigned char*)aligned_alloc(64, fibre_room * THREADS);
  block->room = (unsigned char*)mmap(nullptr, shared_room + 4096, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(block->room + shared_room, 4096, PROT_NONE);
  return block;
}
// With the library: there are hundreds of them in a run of the tests.
__attribute__((destructor)) static void free_blocks() {
  while (idle.first) {
    EmulatedBlock* block = idle.pop();
    munmap(block->room, shared_room + 4096);
    free(block->stacks), free(block);
  }
}
static void run_blocks(int blocks, Work work, void** arguments) {
  Queue waiting;
  fibre_work = work;
  fibre_arguments = arguments;
  for (int next = 0; next < blocks || waiting.first;) {
    if (next < blocks) {
      live = idle.first ? idle.pop() : new_block();
      begin_block(next++);
    } else {
      live = waiting.pop();
    }
    advance_block();
    (live->left ? waiting : idle).push(live);
  }
}

DEVICE float float_of_bits(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
DEVICE unsigned bits_of_float(float x) {
  unsigned value;
  memcpy(&value, &x, 4);
  return value;
}
DEVICE double double_of_bits(unsigned long long bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}
DEVICE float power_of_two(float x) { return exp2f(x); }
DEVICE float inverse_of(float x) { return 1.0f / x; }
DEVICE float quotient(float a, float b) { return a / b; }
DEVICE float near_root(float x) { return sqrtf(x); }
DEVICE float rounded_product(float a, float b) { return a * b; }
DEVICE unsigned count_up(unsigned* address) { return (*address)++; }
DEVICE void publish() {}
DEVICE void arrive(unsigned long long* counter) { (*counter)++; }
DEVICE unsigned long long arrived(const unsigned long long* counter) {
  live->waits = true;
  leave_fibre();
  return *counter;
}
template <class T> DEVICE T from_lane_above(T value, int distance) {
  static T values[THREADS];
  values[THREAD] = value;
  wait_at(emulated_warps[THREAD / 32]);
  const bool inside = THREAD % 32 + distance < 32;
  const T other = values[inside ? THREAD + distance : THREAD];
  wait_at(emulated_warps[THREAD / 32]);
  return other;
}
template <class T> DEVICE T from_lane(T value, int lane) {
  static T values[THREADS];
  values[THREAD] = value;
  wait_at(emulated_warps[THREAD / 32]);
  const T other = values[THREAD / 32 * 32 + lane];
  wait_at(emulated_warps[THREAD / 32]);
  return other;
}
DEVICE bool is_whole_warp() { return false; }  // which lanes come is not known
DEVICE unsigned lanes_that(bool answer) {
  static bool answers[THREADS];
  answers[THREAD] = answer;
  wait_at(emulated_warps[THREAD / 32]);
  unsigned all = 0;
  for (int lane = 0; lane < 32; lane++)
    all |= (unsigned)answers[THREAD / 32 * 32 + lane] << lane;
  wait_at(emulated_warps[THREAD / 32]);
  return all;
}
DEVICE int bits_in(unsigned word) { return __builtin_popcount(word); }
DEVICE float read_through(const float* address) { return *address; }
DEVICE double read_through(const double* address) { return *address; }
template <int WIDTH>
DEVICE void read_lanes_through(float (&lanes)[WIDTH], const float* from) {
  if ((uintptr_t)from % sizeof lanes) abort();
  for (int i = 0; i < WIDTH; i++) lanes[i] = from[i];
}
DEVICE void wait_for_others() {}
DEVICE void let_others_start() {}

template <int BYTES, bool AGAIN>
DEVICE void copy_async(void* to, const void* from, bool wanted) {
  if ((uintptr_t)to % BYTES || (wanted && (uintptr_t)from % BYTES)) abort();
  if (wanted)
    memcpy(to, from, BYTES);
  else
    memset(to, 0, BYTES);
}
static const void* matrix_rows[THREADS];
static void publish_row(const void* row) {
  if ((uintptr_t)row % 16) abort();
  matrix_rows[THREAD] = row;
  wait_at(emulated_warps[THREAD / 32]);
}
DEVICE void load_matrices(unsigned (&words)[4], const void* row) {
  const int warp = THREAD / 32, lane = THREAD % 32;
  publish_row(row);
  for (int i = 0; i < 4; i++)
    words[i] = ((const unsigned*)matrix_rows[warp * 32 + i * 8 + lane / 4])[lane % 4];
  wait_at(emulated_warps[warp]);
}
DEVICE void load_transposed(unsigned (&words)[4], const void* row) {
  const int warp = THREAD / 32, lane = THREAD % 32;
  publish_row(row);
  for (int i = 0; i < 4; i++) {
    unsigned short pair[2];
    for (int j = 0; j < 2; j++) {
      const void* line = matrix_rows[warp * 32 + i * 8 + lane % 4 * 2 + j];
      pair[j] = ((const unsigned short*)line)[lane / 4];
    }
    words[i] = pair[0] | (unsigned)pair[1] << 16;
  }
  wait_at(emulated_warps[warp]);
}
DEVICE void commit_copies() {}
template <int LEFT> DEVICE void await_copies() {}
DEVICE unsigned as_tf32(float x) {
  const unsigned bits = bits_of_float(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0xfffu + ((bits >> 13) & 1)) & ~0x1fffu;
}
DEVICE unsigned bf16_bits(float x) {
  const unsigned bits = bits_of_float(x);
  if (x != x) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
}
DEVICE unsigned as_bf16_pair(float low, float high) {
  return bf16_bits(low) | bf16_bits(high) << 16;
}
static float fragments[THREADS][6][2];  // registers, with one number or two of 16 bits
template <bool BF16>
DEVICE void multiply_parts(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const int warp = THREAD / 32, lane = THREAD % 32, g = lane / 4, t = lane % 4;
  constexpr int NUMBERS = BF16 ? 2 : 1;
  for (int i = 0; i < 6; i++) {
    const unsigned bits = i < 4 ? a[i] : b[i - 4];
    fragments[THREAD][i][0] = float_of_bits(BF16 ? bits << 16 : bits);
    if (BF16) fragments[THREAD][i][1] = float_of_bits(bits & 0xffff0000u);
  }
  wait_at(emulated_warps[warp]);
  for (int h = 0; h < 4; h++) {
    const auto* rows = fragments + warp * 32 + g * 4;
    const auto* columns = fragments + warp * 32 + (2 * t + h % 2) * 4;
    double total = 0;
    for (int half = 0; half < 2; half++)
      for (int i = 0; i < 4; i++)
        for (int n = 0; n < NUMBERS; n++)
          total += (double)rows[i][h / 2 + 2 * half][n] * columns[i][4 + half][n];
    c[h] = (float)(c[h] + total);
  }
  wait_at(emulated_warps[warp]);
}
DEVICE void multiply_tf32(float (&c)[4], const unsigned (&a)[4],
                          const unsigned (&b)[2]) {
  multiply_parts<false>(c, a, b);
}
DEVICE void multiply_bf16(float (&c)[4], const unsigned (&a)[4],
                          const unsigned (&b)[2]) {
  multiply_parts<true>(c, a, b);
}
#pragma GCC pop_options

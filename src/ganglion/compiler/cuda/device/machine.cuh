#define METHOD __device__ __forceinline__
#define DEVICE static METHOD
#define RESTRICT __restrict__
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)
#define MODEL ((int)blockIdx.y)
#define BLOCKS ((int)gridDim.x)  // of each model
#define MODELS ((int)gridDim.y)
#define BARRIER __syncthreads()
extern __shared__ __align__(128) unsigned char shared_bytes[];

DEVICE float float_of_bits(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned bits_of_float(float x) { return __float_as_uint(x); }
DEVICE double double_of_bits(unsigned long long bits) {
  return __longlong_as_double((long long)bits);
}
DEVICE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float inverse_of(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float quotient(float a, float b) {
  float y;
  asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
DEVICE float near_root(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// A product that is rounded before it is added to anything.
DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }
DEVICE unsigned count_up(unsigned* address) { return atomicAdd(address, 1u); }
DEVICE void publish() { __threadfence(); }
// What a thread, or others before a barrier, wrote is seen by who counts its arrival.
DEVICE void arrive(unsigned long long* counter) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(counter), "l"(1ull)
               : "memory");
}
DEVICE unsigned long long arrived(const unsigned long long* counter) {
  unsigned long long count;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
               : "=l"(count)
               : "l"(counter)
               : "memory");
  return count;
}
// What the thread `distance` lanes up has; one's own where there is none.
template <class T> DEVICE T from_lane_above(T value, int distance) {
  return __shfl_down_sync(0xffffffffu, value, distance);
}
template <class T> DEVICE T from_lane(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
DEVICE bool is_whole_warp() { return __activemask() == 0xffffffffu; }
// Which lanes say yes, a bit for each.
DEVICE unsigned lanes_that(bool says) { return __ballot_sync(0xffffffffu, says); }
DEVICE int bits_in(unsigned word) { return __popc(word); }
DEVICE float read_through(const float* address) { return __ldcg(address); }
DEVICE double read_through(const double* address) { return __ldcg(address); }
DEVICE void read_lanes_through(float (&lanes)[1], const float* from) {
  lanes[0] = __ldcg(from);
}
DEVICE void read_lanes_through(float (&lanes)[4], const float* from) {
  const float4 found = __ldcg((const float4*)from);
  lanes[0] = found.x, lanes[1] = found.y, lanes[2] = found.z, lanes[3] = found.w;
}
DEVICE void wait_for_others() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void let_others_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#if __CUDA_ARCH__ >= 800
#define TENSOR_CORES
DEVICE unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}
template <int BYTES, bool AGAIN>
DEVICE void copy_async(void* to, const void* from, bool wanted) {
  // What is not wanted is filled with zeros, and its address not looked at; what is
  // needed again stays in the L1 cache.
  const int size = wanted ? BYTES : 0;
  if constexpr (BYTES == 16 && !AGAIN)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(size)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(size), "n"(BYTES)
                 : "memory");
}
// Four matrices of 8 rows of 16 bytes: each lane names a row, and gets one word of its
// own row of each.
DEVICE void load_matrices(unsigned (&words)[4], const void* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "r"(shared_address(row))
      : "memory");
}
// The same of bf16 matrices that lie the other way: two words of a column of each.
DEVICE void load_transposed(unsigned (&words)[4], const void* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "r"(shared_address(row))
      : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
DEVICE void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
DEVICE unsigned as_tf32(float x) {
  unsigned bits;
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#else
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
  return bits;
}
DEVICE unsigned as_bf16_pair(float low, float high) {
  unsigned bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
DEVICE void multiply_tf32(float (&c)[4], const unsigned (&a)[4],
                          const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void multiply_bf16(float (&c)[4], const unsigned (&a)[4],
                          const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

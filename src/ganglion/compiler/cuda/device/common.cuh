DEVICE void start_after_others() {
  wait_for_others();
  let_others_start();
}
// The memory of a block's model, where every model's is as far from the next one's.
template <class T> DEVICE T* of_model(T* first, long long stride, int model = MODEL) {
  return (T*)((char*)first + model * stride);
}
// Which block of which model a block is, where the first blocks of all models start
// first: so processors have like ones, not some all that is long, and others the rest.
struct Place {
  int block, model;
  DEVICE Place of_like_blocks() {
    const int number = MODEL * BLOCKS + BLOCK;
    return {number / MODELS, number % MODELS};
  }
};
template <class T> DEVICE T infinity();
template <> METHOD float infinity<float>() { return float_of_bits(0x7f800000u); }
template <> METHOD double infinity<double>() {
  return double_of_bits(0x7ff0000000000000ull);
}
template <class T> DEVICE T not_a_number();
template <> METHOD float not_a_number<float>() { return float_of_bits(0x7fc00000u); }
template <> METHOD double not_a_number<double>() {
  return double_of_bits(0x7ff8000000000000ull);
}

// NaN if either is NaN.
template <class T> DEVICE T larger(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T> DEVICE T smaller(T a, T b) { return (a < b || a != a) ? a : b; }
template <class T> DEVICE T size_of(T a) { return a < T(0) ? T(-a) : a; }
template <> METHOD float size_of(float a) { return fabsf(a); }
template <> METHOD double size_of(double a) { return fabs(a); }
template <class T> DEVICE T sign_of(T a) {
  return a > T(0) ? T(1) : a < T(0) ? T(-1) : a != a ? a : T(0);
}
DEVICE bool is_finite(float a) { return fabsf(a) < infinity<float>(); }
DEVICE bool is_finite(double a) { return fabs(a) < infinity<double>(); }
DEVICE float root_of(float a) {
  return a == -infinity<float>() ? infinity<float>() : sqrtf(a + 0.0f);
}
DEVICE double root_of(double a) {
  return a == -infinity<double>() ? infinity<double>() : sqrt(a + 0.0);
}
// Without branches, so that a thread computes several at once; good to about 3e-7.
DEVICE float exponential(float a) {
  const float whole = a * 1.44269504f;
  const float rest = fmaf(a, 1.44269504f, -whole) + a * 1.92596299e-8f;
  const float power = power_of_two(whole);
  return fmaf(power, rest * 0.693147181f, power);
}
DEVICE float sigmoid_of(float a) {
  const float e = exponential(-fabsf(a)), inverse = inverse_of(1.0f + e);
  return a < 0.0f ? e * inverse : a == a ? inverse : a;
}
DEVICE float tanh_of(float a) {
  const float s = a * a, e = exponential(-2.0f * fabsf(a));
  const float far = (1.0f - e) * inverse_of(1.0f + e);
  float near = fmaf(s, 3.59212803e-3f, -8.86323553e-3f);
  near = fmaf(s, near, 2.18694885e-2f);
  near = fmaf(s, near, -5.39682540e-2f);
  near = fmaf(s, near, 1.33333333e-1f);
  near = fmaf(s, near, -3.33333333e-1f);
  near = fmaf(a * s, near, a);
  return fabsf(a) > 0.5f ? (a < 0.0f ? -far : far) : near;
}
DEVICE double tanh_of(double a) { return tanh(a); }
DEVICE double sigmoid_of(double a) {
  const double e = exp(-fabs(a));
  return (a < 0.0 ? e : 1.0) / (1.0 + e);
}
// The remainder with the sign of the divisor.
template <class T> DEVICE T moved_remainder(T rest, T b) {
  return rest != T(0) && (rest < T(0)) != (b < T(0)) ? T(rest + b) : rest;
}
template <class T> DEVICE T remainder_of(T a, T b) {
  return b == T(0) ? T(0) : moved_remainder(T(a % b), b);
}
template <> METHOD float remainder_of(float a, float b) {
  return moved_remainder(fmodf(a, b), b);
}
template <> METHOD double remainder_of(double a, double b) {
  return moved_remainder(fmod(a, b), b);
}

// ---- neighbours ------------------------------------------------------------------

struct alignas(16) Bytes16 { unsigned words[4]; };
struct alignas(8) Bytes8 { unsigned words[2]; };
template <int BYTES> struct Chunk { typedef Bytes16 Type; };
template <> struct Chunk<8> { typedef Bytes8 Type; };
template <> struct Chunk<4> { typedef unsigned Type; };
template <> struct Chunk<2> { typedef unsigned short Type; };
template <int LANES, class T> DEVICE void load_lanes(T (&to)[LANES], const T* from) {
  constexpr int bytes = LANES * (int)sizeof(T);
  typedef typename Chunk<(bytes > 16 ? 16 : bytes)>::Type Part;
  union { Part parts[bytes / (int)sizeof(Part)]; T lanes[LANES]; } both;
#pragma unroll
  for (int i = 0; i < bytes / (int)sizeof(Part); i++)
    both.parts[i] = ((const Part*)from)[i];
#pragma unroll
  for (int i = 0; i < LANES; i++) to[i] = both.lanes[i];
}
template <int LANES, class T> DEVICE void store_lanes(T* to, const T (&from)[LANES]) {
  constexpr int bytes = LANES * (int)sizeof(T);
  typedef typename Chunk<(bytes > 16 ? 16 : bytes)>::Type Part;
  union { Part parts[bytes / (int)sizeof(Part)]; T lanes[LANES]; } both;
#pragma unroll
  for (int i = 0; i < LANES; i++) both.lanes[i] = from[i];
#pragma unroll
  for (int i = 0; i < bytes / (int)sizeof(Part); i++)
    ((Part*)to)[i] = both.parts[i];
}

// Where an element of a matrix with rows of WIDTH lies in shared memory. Rows begin in
// different banks: neighbours of eight stay together, and change places with others. So
// threads of a warp do not wait for each other that take columns of every fourth row, or
// rows of which each is the second next.
template <int WIDTH> DEVICE int swizzled(int at) {
  if constexpr (WIDTH == 0) {
    return at;
  } else {
    const unsigned row = (unsigned)at / WIDTH;
    return at ^ (int)(row / 4 % 4 * 8 ^ row / 2 % 2 * 16);
  }
}

// Copies a small array to shared memory; it is there after `wait_for_staged`.
template <int COUNT, int WIDTH = 0, class T> DEVICE void stage(T* to, const T* from) {
#ifdef TENSOR_CORES
  constexpr int BYTES = COUNT * (int)sizeof(T);
  constexpr int CHUNK = BYTES % 16 == 0 ? 16 : 4;
  if constexpr (BYTES % CHUNK == 0) {
    constexpr int EACH = THREADS * CHUNK;
#pragma unroll
    for (int turn = 0; turn < (BYTES + EACH - 1) / EACH; turn++) {
      const int at = turn * EACH + THREAD * CHUNK;
      char* target = (char*)(to + swizzled<WIDTH>(at / (int)sizeof(T)));
      if ((turn + 1) * EACH <= BYTES || at < BYTES)
        copy_async<CHUNK, false>(target + at % (int)sizeof(T), (const char*)from + at,
                                 true);
    }
    return;
  }
#endif
  for (int i = THREAD; i < COUNT; i += THREADS) to[swizzled<WIDTH>(i)] = from[i];
}
DEVICE void wait_for_staged() {
#ifdef TENSOR_CORES
  commit_copies();
  await_copies<0>();
#endif
  BARRIER;
}
// Copies from shared memory; threads that have least to do begin.
template <int COUNT, int WIDTH = 0, class T>
DEVICE void write_back(T* to, const T* from) {
#pragma unroll
  for (int turn = 0; turn < (COUNT + THREADS - 1) / THREADS; turn++) {
    const int i = turn * THREADS + THREADS - 1 - THREAD;
    if (i < COUNT) to[i] = from[swizzled<WIDTH>(i)];
  }
}

#ifdef TENSOR_CORES
// Two bytes in memory, a float as soon as it is computed with.
struct bf16 {
  unsigned short bits;
  METHOD operator float() const { return float_of_bits((unsigned)bits << 16); }
  METHOD void operator=(float x) { bits = (unsigned short)as_bf16_pair(x, 0.0f); }
};
template <int LANES> DEVICE void load_lanes(float (&to)[LANES], const bf16* from) {
  bf16 loaded[LANES];
  load_lanes(loaded, from);
#pragma unroll
  for (int i = 0; i < LANES; i++) to[i] = loaded[i];
}
template <int LANES> DEVICE void store_lanes(bf16* to, const float (&from)[LANES]) {
  if constexpr (LANES == 1) {
    *to = from[0];
  } else {
    unsigned pairs[LANES / 2];
#pragma unroll
    for (int i = 0; i < LANES; i += 2)
      pairs[i / 2] = as_bf16_pair(from[i], from[i + 1]);
    store_lanes((unsigned*)to, pairs);
  }
}
DEVICE float rounded_to_tf32(float x) { return float_of_bits(as_tf32(x)); }
template <int LANES> DEVICE void round_lanes(float (&values)[LANES]) {
#pragma unroll
  for (int i = 0; i < LANES; i++) values[i] = rounded_to_tf32(values[i]);
}
#endif

// ---- random numbers: Philox 4x32-10 ------------------------------------------------

struct Words { unsigned word[4]; };
DEVICE Words philox(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned k0,
                    unsigned k1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const unsigned long long product0 = (unsigned long long)c0 * 0xD2511F53u;
    const unsigned long long product2 = (unsigned long long)c2 * 0xCD9E8D57u;
    c0 = (unsigned)(product2 >> 32) ^ c1 ^ k0;
    c2 = (unsigned)(product0 >> 32) ^ c3 ^ k1;
    c1 = (unsigned)product2;
    c3 = (unsigned)product0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
template <class T> DEVICE T uniform_of(const unsigned* state, long long element) {
  const Words drawn =
      philox((unsigned)(element >> 2), 0u, state[1], 0u, state[0], 0u);
  const int which = (int)(element & 3);
  const unsigned bits = which == 0   ? drawn.word[0]
                        : which == 1 ? drawn.word[1]
                        : which == 2 ? drawn.word[2]
                                     : drawn.word[3];
  return (T)(bits >> 8) * (T)0x1p-24;
}
// The row at a position of the order. Where few threads ask, they are EAGER: two rounds
// at a time, the second for both ends of the first, so that nobody waits for a bit.
template <bool EAGER = true>
DEVICE int shuffled(const unsigned* state, int position, unsigned rows) {
  const unsigned seed = state[0], epoch = state[1];
  auto offset = [&](unsigned round) {
    return philox(round, 0u, epoch, 1u, seed, 1u).word[0] % rows;
  };
  auto partner = [&](unsigned x, unsigned by) {
    const unsigned away = by + rows - x;  // rows < 2^31: no overflow
    return away >= rows ? away - rows : away;
  };
  auto swaps = [&](unsigned round, unsigned x, unsigned other) {
    const unsigned pair = x > other ? x : other;
    return (philox(round, pair, epoch, 0u, seed, 1u).word[0] & 1u) != 0u;
  };
  // Of a whole warp, each thread draws the offset of one round for all.
  static_assert(SHUFFLE_ROUNDS <= 32u, "a thread for every round");
  const bool whole = is_whole_warp();
  const unsigned mine = whole ? offset(THREAD % 32) : 0u;
  auto known_offset = [&](unsigned round) {
    return whole ? from_lane(mine, (int)(round % 32u)) : offset(round);
  };
  unsigned x = (unsigned)position;
  if constexpr (!EAGER) {
#pragma unroll 1
    for (unsigned round = 0; round < SHUFFLE_ROUNDS; round++) {
      const unsigned y = partner(x, known_offset(round));
      x = swaps(round, x, y) ? y : x;
    }
    return (int)x;
  }
  unsigned first = known_offset(0u), second = known_offset(1u);
  static_assert(SHUFFLE_ROUNDS % 2u == 0u, "whole pairs of rounds");
#pragma unroll 1
  for (unsigned round = 0; round < SHUFFLE_ROUNDS; round += 2u) {
    const unsigned y = partner(x, first);
    const unsigned after_x = partner(x, second), after_y = partner(y, second);
    const bool swap = swaps(round, x, y);
    const bool then_x = swaps(round + 1u, x, after_x);
    const bool then_y = swaps(round + 1u, y, after_y);
    first = known_offset(round + 2u);  // nor does anybody wait for these
    second = known_offset(round + 3u);
    x = swap ? (then_y ? after_y : y) : (then_x ? after_x : x);
  }
  return (int)x;
}

// ---- reductions --------------------------

template <class T> struct Best { T value; long long index; };
// The first of the largest; NaN counts as largest.
template <class T> DEVICE void take_better(Best<T>& best, const Best<T>& other) {
  if (other.index < 0) return;
  const bool known = best.value != best.value, now = other.value != other.value;
  bool better = best.index < 0;
  if (known || now)
    better = better || (now && (!known || other.index < best.index));
  else
    better = better || other.value > best.value ||
             (other.value == best.value && other.index < best.index);
  if (better) best = other;
}
template <class T> DEVICE Best<T> from_lane_above(Best<T> best, int distance) {
  return {from_lane_above(best.value, distance), from_lane_above(best.index, distance)};
}
DEVICE bool am_last(unsigned* counter, unsigned splits) {
  // All threads of a block ask; the last of `splits` blocks is told so. What a block
  // wrote before its barrier is published by the thread that counts.
  bool* last = (bool*)shared_bytes;
  BARRIER;
  if (THREAD == 0) {
    publish();
    *last = count_up(counter) == splits - 1;
    if (*last) *counter = 0;
    publish();
  }
  BARRIER;
  const bool answer = *last;
  BARRIER;
  return answer;
}

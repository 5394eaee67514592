// Products of a loop over time: a few rows times weights that do not change. Tiles of
// 16 columns belong to the warps of a block in turn. Of the fragments of a warp, the
// first stay in registers, the next in shared memory; what is left is read at each step.
// Blocks may share the same rows: then each has OWN of every UNITS columns.

// Lets blocks that share rows wait for each other, some turns a launch; they run at once.
struct BlocksTogether {
  unsigned long long* counter;
  unsigned long long awaited;
  int blocks;

  METHOD BlocksTogether(unsigned long long* arrivals, int count, int turns)
      : counter(arrivals), blocks(count) {
    // The launch before has ended: its turns are complete, and ours are not.
    const unsigned long long all = (unsigned long long)count * turns;
    const unsigned long long now = THREAD == 0 ? arrived(arrivals) : 0ull;
    awaited = now - now % all;
  }
  METHOD void wait() {
    BARRIER;
    awaited += blocks;
    if (THREAD == 0) {
      arrive(counter);
      while (arrived(counter) < awaited) {}
    }
    BARRIER;
  }
};

struct alignas(16) Fragment { unsigned word[4]; };  // of 16 columns, 8 inner indices

template <int ROWS, int COLUMNS, int INNER, int LINE, int HELD, int STAGED, int UNITS,
          int OWN, int WIDTH>
struct KeptWeights {
  static constexpr int WARPS = THREADS / 32, TILES = (COLUMNS + 15) / 16;
  // Where tiles are few, warps share them: each has a part of the inner axis.
  static constexpr int PARTS = TILES <= WARPS / 4 ? 4 : TILES <= WARPS / 2 ? 2 : 1;
  static constexpr int ACROSS = WARPS / PARTS;
  static constexpr int PER_WARP = (TILES + ACROSS - 1) / ACROSS;
  static constexpr int STEPS = ((INNER + 7) / 8 + PARTS - 1) / PARTS;
  static constexpr int LEFT_LINE = PARTS * STEPS * 8 + 4;
  static constexpr int CHAINS = 4;

  const float* weights;
  Fragment* staged;
  int first;  // of the columns that are this block's
  Fragment held[HELD ? HELD : 1];

  METHOD int in_matrix(int column) const {
    return column / OWN * UNITS + first + column % OWN;
  }
  METHOD Fragment read(int number) const {
    const int lane = THREAD % 32, tile = number / STEPS * ACROSS + THREAD / 32 % ACROSS;
    const int part = THREAD / 32 / ACROSS;
    Fragment fragment;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int column = tile * 16 + lane / 4 + i % 2 * 8;
      const int inner = (part * STEPS + number % STEPS) * 8 + lane % 4 + i / 2 * 4;
      const bool inside = column < COLUMNS && inner < INNER;
      const int offset = inner * LINE + in_matrix(column);
      fragment.word[i] = inside ? as_tf32(weights[offset]) : 0u;
    }
    return fragment;
  }
  METHOD Fragment* in_shared(int number) const {
    return staged + (number * WARPS + THREAD / 32) * 32 + THREAD % 32;
  }
  METHOD KeptWeights(const float* matrix, void* shared, unsigned* left, int share)
      : weights(matrix), staged((Fragment*)shared), first(share * OWN) {
    // Rows and inner indices that there are not stay zero.
    for (int i = THREAD; i < 8 * LEFT_LINE; i += THREADS) left[i] = 0u;
    BARRIER;
#pragma unroll
    for (int number = 0; number < HELD; number++) held[number] = read(number);
#pragma unroll 4
    for (int number = 0; number < STAGED; number++)
      *in_shared(number) = read(HELD + number);
  }
  // Copies the rows to shared memory, as tensor cores take them.
  METHOD void stage_rows(unsigned* left, const float* rows, int line) const {
    constexpr int EACH = (INNER + WIDTH - 1) / WIDTH;
    constexpr int TURNS = (ROWS * EACH + THREADS - 1) / THREADS;
    float found[TURNS][WIDTH];
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
      const int i = turn * THREADS + THREAD, row = i / EACH, inner = i % EACH * WIDTH;
      if (row < ROWS) read_lanes_through(found[turn], rows + row * line + inner);
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
      const int i = turn * THREADS + THREAD, row = i / EACH, inner = i % EACH * WIDTH;
#pragma unroll
      for (int lane = 0; lane < WIDTH; lane++)
        if (row < ROWS) left[row * LEFT_LINE + inner + lane] = as_tf32(found[turn][lane]);
    }
  }
  // All threads of a block come here; `partial` is behind the rows in shared memory.
  METHOD void multiply(const unsigned* left, float* partial, float* out, int line) const {
    const int lane = THREAD % 32, warp = THREAD / 32, part = warp / ACROSS;
    float totals[PER_WARP][4];
#pragma unroll
    for (int turn = 0; turn < PER_WARP; turn++) {
      float sums[CHAINS][4] = {};
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        const int number = turn * STEPS + step;
        Fragment fragment;
        if (number < HELD)
          fragment = held[number < HELD ? number : 0];
        else if (number < HELD + STAGED)
          fragment = *in_shared(number - HELD);
        else
          fragment = read(number);
        const int inner = (part * STEPS + step) * 8 + lane % 4;
        const unsigned* from = left + lane / 4 * LEFT_LINE + inner;
        const unsigned pair[2] = {from[0], from[4]};
        multiply_tf32(sums[step % CHAINS], fragment.word, pair);
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
        totals[turn][i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
    }
    if (PARTS > 1) {
      float* mine = partial + (part * ACROSS + warp % ACROSS) * PER_WARP * 128 + lane;
#pragma unroll
      for (int i = 0; i < PER_WARP * 4; i++)
        if (part) mine[i * 32] = totals[i / 4][i % 4];
      BARRIER;
#pragma unroll
      for (int other = 1; other < PARTS; other++)
#pragma unroll
        for (int i = 0; i < PER_WARP * 4; i++)
          if (!part) totals[i / 4][i % 4] += mine[other * ACROSS * PER_WARP * 128 + i * 32];
      if (part) return;
    }
#pragma unroll
    for (int i = 0; i < PER_WARP * 4; i++) {
      const int tile = i / 4 * ACROSS + warp % ACROSS;
      const int column = tile * 16 + lane / 4 + i % 4 / 2 * 8, row = lane % 4 * 2 + i % 2;
      if (column < COLUMNS && row < ROWS)
        out[row * line + in_matrix(column)] = totals[i / 4][i % 4];
    }
  }
};

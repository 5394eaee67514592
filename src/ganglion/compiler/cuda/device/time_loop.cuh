// Products of a loop over time: a few rows times weights that do not change. Tiles of
// 16 columns belong to the warps of a block in turn. Of the fragments of a warp, the
// first stay in registers, the next in shared memory; what is left is read at each step.
// Blocks may share the same rows: then each has OWN of every UNITS columns.

// Waits until all blocks that share rows have come here as often; they run at once.
DEVICE void wait_for_blocks(unsigned long long* counter, int blocks, int turns) {
  BARRIER;
  if (THREAD == 0) {
    publish();
    const unsigned long long before = arrive(counter), all = (unsigned long long)blocks * turns;
    const unsigned long long turn = before % all / blocks;
    const unsigned long long awaited = before - before % all + (turn + 1) * blocks;
    while (arrived(counter) < awaited) {}
    publish();
  }
  BARRIER;
}

struct alignas(16) Fragment { unsigned word[4]; };  // of 16 columns, 8 inner indices

template <int ROWS, int COLUMNS, int INNER, int LINE, int HELD, int STAGED, int UNITS,
          int OWN>
struct KeptWeights {
  static constexpr int WARPS = THREADS / 32, TILES = (COLUMNS + 15) / 16;
  static constexpr int PER_WARP = (TILES + WARPS - 1) / WARPS;
  static constexpr int STEPS = (INNER + 7) / 8, LEFT_LINE = STEPS * 8 + 4;
  static constexpr int CHAINS = 4;

  const float* weights;
  Fragment* staged;
  int first;  // of the columns that are this block's
  Fragment held[HELD ? HELD : 1];

  METHOD int in_matrix(int column) const {
    return column / OWN * UNITS + first + column % OWN;
  }
  METHOD Fragment read(int number) const {
    const int lane = THREAD % 32, tile = number / STEPS * WARPS + THREAD / 32;
    Fragment fragment;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int column = tile * 16 + lane / 4 + i % 2 * 8;
      const int inner = number % STEPS * 8 + lane % 4 + i / 2 * 4;
      const bool inside = column < COLUMNS && inner < INNER;
      const int offset = inner * LINE + in_matrix(column);
      fragment.word[i] = inside ? as_tf32(weights[offset]) : 0u;
    }
    return fragment;
  }
  METHOD Fragment* in_shared(int number) const {
    return staged + (number * WARPS + THREAD / 32) * 32 + THREAD % 32;
  }
  METHOD KeptWeights(const float* matrix, void* shared, int share)
      : weights(matrix), staged((Fragment*)shared), first(share * OWN) {
#pragma unroll
    for (int number = 0; number < HELD; number++) held[number] = read(number);
#pragma unroll 4
    for (int number = 0; number < STAGED; number++)
      *in_shared(number) = read(HELD + number);
  }
  // Copies the rows to shared memory, as tensor cores take them.
  METHOD void stage_rows(unsigned* left, const float* rows, int line) const {
#pragma unroll 4
    for (int i = THREAD; i < 8 * STEPS * 8; i += THREADS) {
      const int row = i / (STEPS * 8), inner = i % (STEPS * 8);
      const bool inside = row < ROWS && inner < INNER;
      left[row * LEFT_LINE + inner] = inside ? as_tf32(read_through(rows + row * line + inner)) : 0u;
    }
  }
  METHOD void multiply(const unsigned* left, float* out, int line) const {
    const int lane = THREAD % 32;
#pragma unroll
    for (int turn = 0; turn < PER_WARP; turn++) {
      const int tile = turn * WARPS + THREAD / 32;
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
        const unsigned* from = left + lane / 4 * LEFT_LINE + step * 8 + lane % 4;
        const unsigned pair[2] = {from[0], from[4]};
        multiply_tf32(sums[step % CHAINS], fragment.word, pair);
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float sum = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
        const int column = tile * 16 + lane / 4 + i / 2 * 8;
        const int row = lane % 4 * 2 + i % 2;
        if (column < COLUMNS && row < ROWS) out[row * line + in_matrix(column)] = sum;
      }
    }
  }
};

// ---- sums by columns ---------------------------------------------------------------

// What a thread has seen of a column, around the first of it: so float32 is enough to
// add up squares, too.
struct Spread {
  float first, sum, squares;
  int count;
  METHOD void add(float x) {
    if (count++ == 0) first = x;
    const float away = x - first;
    sum += away;
    squares += away * away;
  }
  METHOD double total() const { return sum + (double)count * first; }
  METHOD double squared() const {
    return squares + first * (2.0 * sum + (double)count * first);
  }
};

// Adds up a column of COUNT rows in shared memory, four sums at a time.
template <int COUNT, int WIDTH, class T> DEVICE double add_column(const T* first) {
  double sums[4] = {};
#pragma unroll
  for (int r = 0; r < COUNT; r++) sums[r % 4] += first[r * WIDTH];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Threads that are ACROSS apart have KINDS sums of the same LANES columns: stores the
// totals of each kind, a kind after the other.
template <int ACROSS, int COLUMNS, int KINDS, int LANES, class T, class To>
DEVICE void fold_threads(const T (&mine)[KINDS][LANES], To* to) {
  constexpr int EACH = ACROSS * LANES, WIDTH = KINDS * EACH;
  T* sums = (T*)shared_bytes;
  T* here = sums + THREAD / ACROSS * WIDTH + THREAD % ACROSS * LANES;
  BARRIER;
  if (THREAD < THREADS / ACROSS * ACROSS) {
#pragma unroll
    for (int k = 0; k < KINDS; k++) store_lanes(here + k * EACH, mine[k]);
  }
  BARRIER;
  for (int c = THREAD; c < WIDTH; c += THREADS)
    if (c % EACH < COLUMNS)
      to[c / EACH * COLUMNS + c % EACH] =
          (T)add_column<THREADS / ACROSS, WIDTH>((const T*)sums + c);
}

// Adds up rows of parts; all threads find the totals in shared memory.
template <int MOST, int WIDTH, class T>
DEVICE const double* add_rows(const T* parts, int rows) {
  constexpr int V = 16 / (int)sizeof(T), ACROSS = WIDTH / V, SHARES = THREADS / ACROSS;
  static_assert(WIDTH % V == 0, "full lines");
  const int column = THREAD % ACROSS * V, share = THREAD / ACROSS;
  double total[V] = {};
#pragma unroll
  for (int u = 0; u < (MOST + SHARES - 1) / SHARES; u++) {
    const int r = share + u * SHARES;
    T part[V] = {};
    if (r < rows && share < SHARES) load_lanes(part, parts + r * WIDTH + column);
#pragma unroll
    for (int v = 0; v < V; v++) total[v] += part[v];
  }
  double* totals = (double*)shared_bytes;
  if (share < SHARES) {
#pragma unroll
    for (int v = 0; v < V; v++) totals[share * WIDTH + column + v] = total[v];
  }
  BARRIER;
  double* sums = totals + SHARES * WIDTH;
  for (int c = THREAD; c < WIDTH; c += THREADS) {
    sums[c] = add_column<SHARES, WIDTH>((const double*)totals + c);
  }
  BARRIER;
  return sums;
}

// As above, with KINDS sums of each column, over the rows of many blocks. The last of
// ROWS blocks with these columns finds their totals in shared memory, others nothing.
// Many blocks are added up in groups of GROUP first, while others are still at work.
template <int ROWS, int GROUP, int ACROSS, int KINDS, int LANES, class T>
DEVICE const double* add_columns(const T (&mine)[KINDS][LANES], T* parts,
                                 unsigned* counters, int row) {
  constexpr int COLUMNS = ACROSS * LANES, WIDTH = KINDS * COLUMNS;
  fold_threads<ACROSS, COLUMNS>(mine, parts + row * WIDTH);
  constexpr int GROUPS = (ROWS + GROUP - 1) / GROUP;
  const int group = row / GROUP, left = ROWS - group * GROUP;
  const int count = left < GROUP ? left : GROUP;
  if (!am_last(counters + group, count)) return 0;
  const double* some = add_rows<GROUP, WIDTH>((const T*)parts + group * GROUP * WIDTH,
                                              count);
  if constexpr (GROUPS == 1) return some;
  T* groups = parts + ROWS * WIDTH;
  for (int c = THREAD; c < WIDTH; c += THREADS) groups[group * WIDTH + c] = (T)some[c];
  if (!am_last(counters + GROUPS, GROUPS)) return 0;
  return add_rows<GROUPS, WIDTH>((const T*)groups, GROUPS);
}

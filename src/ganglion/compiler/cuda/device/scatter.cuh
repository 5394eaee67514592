// ---- adding rows -------------------------------------------------------------------

// Says where a thread's items begin if those of all threads lie in a row.
DEVICE int items_before(int mine, int* sums, int& total) {
  BARRIER;
  sums[THREAD] = mine;
  BARRIER;
  for (int step = 1; step < THREADS; step *= 2) {
    const int below = THREAD >= step ? sums[THREAD - step] : 0;
    BARRIER;
    sums[THREAD] += below;
    BARRIER;
  }
  total = sums[THREADS - 1];
  return sums[THREAD] - mine;
}

template <int ROWS, int COUNT, int WIDTH, int LANES, int BUCKETS, int LISTED, class I,
          class T>
struct Scatter {
  typedef unsigned short Item;  // an update, counted from the first one listed
  static constexpr int EACH = LISTED / THREADS, WIDE = WIDTH / LANES;
  static constexpr int ACROSS = WIDE < THREADS ? WIDE : THREADS;
  static constexpr int GROUPS = THREADS / ACROSS;  // of threads that have a row
  static_assert(EACH <= 32, "a lane for each turn");
  const T* updates;
  const I* index;
  T* target;
  int *sums, *rows;  // of each thread
  T* parts;
  Item *items, *others, *same;
  int count, group, across;

  METHOD int row_of(int update) const {
    const I row = index[update];
    return (unsigned long long)row < ROWS ? (int)row : -1;  // nobody's: left out
  }

  // Lists the updates of a bucket from `start` on. A warp looks at 32 neighbours at a
  // time; what it finds is kept by the lane whose turn it is.
  METHOD void list(int bucket, int start) {
    const int lane = THREAD % 32, first = THREAD / 32 * (EACH * 32);
    unsigned ballots = 0;
#pragma unroll 8
    for (int turn = 0; turn < EACH; turn++) {
      const int update = start + first + turn * 32 + lane;
      const int row = update < COUNT ? row_of(update) : -1;
      const bool ours = row >= 0 && row % BUCKETS == bucket;
      const unsigned all = lanes_that(ours);
      if (lane == turn) ballots = all;
    }
    int to = items_before(bits_in(ballots), sums, count);
    for (int k = 0; k < 32; k++)
      if (ballots >> k & 1) items[to++] = first + lane * 32 + k;
    BARRIER;
  }

  METHOD void add_update(T (&total)[LANES], int update, int column) const {
    T one[LANES];
    load_lanes(one, updates + (long long)update * WIDTH + column);
#pragma unroll
    for (int l = 0; l < LANES; l++) total[l] += one[l];
  }

  // Takes the first item's row from the list; all threads add up its updates.
  METHOD void add_often(int start) {
    const int row = row_of(start + items[0]);
    const int share = (count + THREADS - 1) / THREADS, begin = THREAD * share;
    const int end = begin + share < count ? begin + share : count;
    int mine = 0, often;
    for (int k = begin; k < end; k++) mine += row_of(start + items[k]) == row;
    int to = items_before(mine, sums, often), left = begin - to;
    for (int k = begin; k < end; k++) {
      const Item item = items[k];
      if (row_of(start + item) == row)
        same[to++] = item;
      else
        others[left++] = item;
    }
    BARRIER;
    for (int first = 0; first < WIDTH; first += ACROSS * LANES) {
      const int column = first + across * LANES;
      const bool works = group < GROUPS && column < WIDTH;
      T total[LANES] = {};
#pragma unroll 4
      for (int k = group; works && k < often; k += GROUPS)
        add_update(total, start + same[k], column);
      if (works) store_lanes(parts + (group * ACROSS + across) * LANES, total);
      BARRIER;
      if (group == 0 && works) {
        T* to_row = target + (long long)row * WIDTH + column;
        load_lanes(total, (const T*)to_row);
        for (int g = 0; g < GROUPS; g++) {
          T part[LANES];
          load_lanes(part, (const T*)parts + (g * ACROSS + across) * LANES);
#pragma unroll
          for (int l = 0; l < LANES; l++) total[l] += part[l];
        }
        store_lanes(to_row, total);
      }
      BARRIER;
    }
    count -= often;
    Item* const listed = items;
    items = others;
    others = listed;
  }

  // Adds what is on the list, no more than there are threads: some have a row each.
  METHOD void add_rest(int start) {
    if (THREAD < count) rows[THREAD] = row_of(start + items[THREAD]);
    BARRIER;
    bool is_first = THREAD < count;
    for (int k = 0; is_first && k < THREAD; k++) is_first = rows[k] != rows[THREAD];
    sums[THREAD] = is_first;
    BARRIER;
    for (int k = group; group < GROUPS && k < count; k += GROUPS) {
      if (!sums[k]) continue;
      for (int column = across * LANES; column < WIDTH; column += ACROSS * LANES) {
        T* to_row = target + (long long)rows[k] * WIDTH + column;
        T total[LANES];
        load_lanes(total, (const T*)to_row);
        for (int other = k; other < count; other++)
          if (rows[other] == rows[k]) add_update(total, start + items[other], column);
        store_lanes(to_row, total);
      }
    }
    BARRIER;
  }

  METHOD void run(int block, int blocks) {
    sums = (int*)shared_bytes;
    rows = sums + THREADS;
    parts = (T*)(rows + THREADS);
    items = (Item*)(parts + THREADS * LANES);
    others = items + LISTED;
    same = others + LISTED;
    group = THREAD / ACROSS;
    across = THREAD % ACROSS;
    for (int bucket = block; bucket < BUCKETS; bucket += blocks)
      for (int start = 0; start < COUNT; start += LISTED) {
        list(bucket, start);
        while (count > THREADS) add_often(start);
        add_rest(start);
      }
  }
};

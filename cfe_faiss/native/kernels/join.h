// The kernels of the similarity join (see core/join.h). Its bounds are rigorous, so sums may have any order.
#pragma once

#include "core/join.h"
#include "simd/load.h"

namespace cfe::CFE_LEVEL {

struct SketchBox {
  F32x16 low, high;
};

// The squared distance of two boxes: the sum over axes of max(0, low - other high, other low - high)**2.
CFE_INLINE float squared_distance(const SketchBox& a, const SketchBox& b) {
  const F32x16 apart = larger(larger(a.low - b.high, b.low - a.high), F32x16::all(0));
  return sum(apart * apart);
}

CFE_INLINE SketchBox sketch_of(const float* sketches, std::int64_t row) {
  const F32x16 sketch = F32x16::load(sketches + static_cast<std::size_t>(row) * kSketch);
  return {sketch, sketch};
}

float box_distance(const float* low, const float* high, const float* other_low, const float* other_high) {
  return squared_distance({F32x16::load(low), F32x16::load(high)}, {F32x16::load(other_low), F32x16::load(other_high)});
}

// Writes the rows whose sketches are within the limit of a box; returns their number.
std::size_t close_rows(std::span<const std::int64_t> rows, const float* sketches, const float* low, const float* high,
                       double limit, std::int64_t* close) {
  const SketchBox box{F32x16::load(low), F32x16::load(high)};
  std::size_t count = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    close[count] = rows[r];
    count += squared_distance(sketch_of(sketches, rows[r]), box) <= limit;
  }
  return count;
}

// Copies the sketches of the leaf's rows within the limit of some rows, component by component. Returns their number.
CFE_INLINE std::size_t close_columns(const JoinTree& tree, const JoinLeaf& leaf, double limit) {
  const float *own = tree.coarse.data, *sketches = leaf.others.coarse.data;
  SketchBox box = sketch_of(own, leaf.rows[0]);
  for (std::size_t r = 1; r < leaf.rows.size(); ++r) {
    const F32x16 sketch = sketch_of(own, leaf.rows[r]).low;
    box = {smaller(box.low, sketch), larger(box.high, sketch)};
  }
  std::size_t width = 0;
  for (std::int64_t row = leaf.first; row < leaf.stop; ++row) {
    leaf.close[width] = row;
    width += squared_distance(sketch_of(sketches, row), box) <= limit;
  }
  for (std::size_t c = 0; c < width; ++c)
    for (std::size_t i = 0; i < kSketch; ++i)
      leaf.columns[i * leaf.padded + c] = sketches[static_cast<std::size_t>(leaf.close[c]) * kSketch + i];
  return width;
}

// Writes the inner products of a sketch with some columns, 16 at a time. Returns whether any reaches the limit.
CFE_INLINE bool column_products(const float* sketch, const JoinLeaf& leaf, std::size_t width, float limit) {
  constexpr std::size_t kSums = kWidth == 16 ? 4 : kWidth == 8 ? 2 : 1;  // hide the latency of additions
  F32x16 largest = F32x16::all(-std::numeric_limits<float>::infinity());
  for (std::size_t c = 0; c < width; c += kLanes) {
    F32x16 sums[kSums];
    for (F32x16& total : sums) total = F32x16::all(0);
    for (std::size_t i = 0; i < kSketch; ++i)
      sums[i % kSums] =
          fused(F32x16::all(sketch[i]), F32x16::load(leaf.columns + i * leaf.padded + c), sums[i % kSums]);
    for (std::size_t i = 1; i < kSums; ++i) sums[0] = sums[0] + sums[i];
    sums[0].store(leaf.scores + c);
    largest = larger(sums[0], largest);
  }
  return any(largest >= F32x16::all(limit));
}

CFE_INLINE float fine_product(const JoinTree& tree, std::int64_t row, const JoinTree& others, std::int64_t other) {
  const std::size_t width = tree.fine.columns;
  const auto* x = reinterpret_cast<const std::uint8_t*>(tree.fine.data + static_cast<std::size_t>(row) * width);
  const auto* y = reinterpret_cast<const std::uint8_t*>(others.fine.data + static_cast<std::size_t>(other) * width);
  F32x16 total = F32x16::all(0);
  std::size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) total = fused(load_floats(x + 4 * i), load_floats(y + 4 * i), total);
  if (i < width) total = fused(load_floats(x + 4 * i, width - i), load_floats(y + 4 * i, width - i), total);
  return sum(total);
}

// Writes the pairs of a block's rows and a leaf's rows that may reach the limits.
void join_leaf(const JoinTree& tree, const JoinLeaf& leaf, const JoinLimits& limits, JoinPairs& pairs,
               JoinCounts& counts) {
  counts.tested += leaf.stop - leaf.first;
  const std::size_t width = close_columns(tree, leaf, limits.distance);
  counts.coarse += static_cast<std::int64_t>(leaf.rows.size() * width);
  for (std::size_t r = 0; r < leaf.rows.size(); ++r) {
    const std::int64_t row = leaf.rows[r];
    const float* sketch = tree.coarse.data + static_cast<std::size_t>(row) * kSketch;
    if (!column_products(sketch, leaf, width, limits.product)) continue;
    for (std::size_t c = 0; c < width; ++c) {
      const std::int64_t other = leaf.close[c];
      if (leaf.scores[c] < limits.product || tree.labels[row] == leaf.others.labels[other]) continue;
      if (leaf.same && other <= row) continue;
      ++counts.fine;
      const float last = leaf.others.coarse.data[static_cast<std::size_t>(other) * kSketch + kSketch - 1];
      const float finer = leaf.scores[c] - sketch[kSketch - 1] * last + fine_product(tree, row, leaf.others, other);
      if (!(finer >= limits.product)) continue;
      pairs.first[pairs.count] = row, pairs.second[pairs.count] = other;
      ++pairs.count;
      ++counts.found;
    }
  }
}

}  // namespace cfe::CFE_LEVEL

// Packing: rows of a list into blocks of 16.
#pragma once

#include "kernels/block_single.h"

namespace cfe::CFE_LEVEL::block {

// Writes the mean of the valid rows.
CFE_INLINE void write_mean(const RowsView& view, const ListRows& rows, float* x, float* mean) {
  std::size_t number = 0;
  for (std::size_t i = 0; i < view.d; ++i) mean[i] = 0;
  for (std::size_t r = 0; r < rows.size; ++r) {
    if (rows.rows[r] < 0) continue;
    decode(view, stored_row(view, rows.rows[r]).code, x);
    if (!is_sound(x, view.d)) continue;
    for (std::size_t i = 0; i < view.d; ++i) mean[i] += x[i];
    ++number;
  }
  for (std::size_t i = 0; number > 0 && i < view.d; ++i) mean[i] /= static_cast<float>(number);
}

CFE_INLINE void write_statistics(const BlocksView& blocks, const Codes& codes, std::int32_t* statistics) {
  auto* floats = reinterpret_cast<float*>(statistics);
  const I32x16 zero = I32x16::all(-kZeroCode);
  const F32x16 rotation_error = codes.norm * F32x16::all(blocks.rotation_error), error = codes.error + rotation_error;
  (codes.sum * zero).store(statistics + kCorrection * kLanes);
  (codes.tail_sum * zero).store(statistics + kTailCorrection * kLanes);
  codes.scale.store(floats + kScale * kLanes);
  error.store(floats + kError * kLanes);
  (codes.norm + error).store(floats + kNormBound * kLanes);
  (codes.tail_norm + rotation_error).store(floats + kTailNorm * kLanes);
}

// Reads up to 16 rows of a list, from `first` on, writes their labels, and calls take(lane) for each. Damaged rows are
// left out.
template <class Take>
CFE_INLINE LabelRange read_block(const RowsView& view, const ListRows& rows, std::size_t first, float* row,
                                 std::int32_t* labels, const Take& take) {
  LabelRange range{std::numeric_limits<std::int32_t>::max(), kUnknown, 0};
  for (int lane = 0; lane < kLanes; ++lane) {
    labels[lane] = kUnknown;
    const std::size_t place = first + static_cast<std::size_t>(lane);
    if (place >= rows.size || rows.rows[place] < 0) continue;
    decode(view, stored_row(view, rows.rows[place]).code, row);
    if (!is_sound(row, view.d)) continue;
    take(lane);
    const std::int32_t label = labels[lane] = rows.labels[place];
    range.smallest = label < range.smallest ? label : range.smallest;
    range.largest = label > range.largest ? label : range.largest;
    range.lanes |= 1u << lane;
  }
  return range;
}

CFE_INLINE void subtract_mean(const float* mean, std::size_t d, const LabelRange& range, float* lanes) {
  float ones[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) ones[lane] = static_cast<float>(range.lanes >> lane & 1);
  const F32x16 there = F32x16::load(ones);  // empty lanes stay zero
  for (std::size_t i = 0; i < d; ++i)
    (F32x16::load(lanes + i * kLanes) - F32x16::all(mean[i]) * there).store(lanes + i * kLanes);
}

// Writes the part of minus the squared distance that only depends on the row; see kernels/block_queries.h.
CFE_INLINE void write_added(const BlocksView& blocks, const float* mean, const float* lanes, float* added) {
  double sums[kLanes] = {};
  for (std::size_t i = 0; i < blocks.rows.d; ++i) {
    const double c = mean[i], twice = 2 * (c - blocks.center[i]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const double centred = lanes[i * kLanes + lane] - c;
      sums[lane] += centred * (centred + twice);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) added[lane] = static_cast<float>(-sums[lane]);
}

// Packs a list: its mean (for bytes), its blocks and their statistics.
void pack_list(const BlocksView& blocks, const ListRows& rows, const ListTarget& target, const PackMemory& memory) {
  const bool bytes = blocks.element == Element::kByte;
  F32x16 longest = F32x16::all(0);
  if (bytes) write_mean(blocks.rows, rows, memory.row, target.mean);
  for (std::size_t first = 0, b = 0; first < rows.size; first += kLanes, ++b) {
    clear(memory.block, blocks.columns);
    target.ranges[b] = read_block(blocks.rows, rows, first, memory.row, target.labels + b * kLanes,
                                  [&](int lane) { put_lane(memory.row, blocks.rows.d, lane, memory.block); });
    std::int32_t* data = target.data + b * blocks.words * kLanes;
    if (!bytes) {
      std::memcpy(data, memory.block, blocks.words * kLanes * sizeof(float));
      continue;
    }
    if (target.added != nullptr) write_added(blocks, target.mean, memory.block, target.added + b * kLanes);
    subtract_mean(target.mean, blocks.rows.d, target.ranges[b], memory.block);
    if (blocks.rotation != nullptr) rotate(blocks, memory.block, memory.rotated);
    const float* lanes = blocks.rotation != nullptr ? memory.rotated : memory.block;
    const Codes codes = encode(blocks, lanes, kLargestRowCode, 0, data);
    write_statistics(blocks, codes, target.statistics + b * kRowStatistics * kLanes);
    longest = larger(codes.norm, longest);
  }
  if (!bytes) return;
  *target.longest = largest_lane(longest);
  if (blocks.rows.metric == Metric::kIp)
    *target.longest += __builtin_sqrtf(dot(target.mean, target.mean, blocks.rows.d));
}

}  // namespace cfe::CFE_LEVEL::block

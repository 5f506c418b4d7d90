// Exact search in a tile: products screen the pairs, and pairs that may be results are scored.
#pragma once

#include "core/tiles.h"
#include "kernels/similarity.h"
#include "simd/load.h"

namespace cfe::CFE_LEVEL {

inline constexpr std::size_t kColumnsAtOnce = 64;  // products that are compared with a threshold at once

// Calls take(j) for each eligible column of row r, some at a time, where reaches(first, stop) says that one of them may
// matter.
template <class Reaches, class Take>
CFE_INLINE void for_each_column(const Tile& tile, std::size_t r, const Reaches& reaches, const Take& take) {
  const EligiblePlaces places = eligible_places(tile.y.labels.data(), tile.y.size(), tile.x.labels[r]);
  for (int side = 0; side < 2; ++side)
    for (std::size_t first = places.first[side]; first < places.stop[side]; first += kColumnsAtOnce) {
      const std::size_t stop = first + kColumnsAtOnce < places.stop[side] ? first + kColumnsAtOnce : places.stop[side];
      if (!reaches(first, stop)) continue;
      for (std::size_t j = first; j < stop; ++j) take(j);
    }
}

// Whether any of some numbers reaches a threshold.
CFE_INLINE bool any_reaches(const float* numbers, std::size_t first, std::size_t stop, float threshold) {
  const F32x16 wanted = F32x16::all(threshold);
  I32x16 found = F32x16::all(0) > F32x16::all(0);
  std::size_t j = first;
  for (; j + kLanes <= stop; j += kLanes) found = found | (F32x16::load(numbers + j) >= wanted);
  bool more = any(found);
  for (; j < stop; ++j) more |= numbers[j] >= threshold;
  return more;
}

// Whether any of some numbers reaches a threshold, or the threshold of its own index.
CFE_INLINE bool any_reaches(const float* numbers, std::size_t first, std::size_t stop, float threshold,
                            const float* thresholds) {
  const F32x16 wanted = F32x16::all(threshold);
  I32x16 found = F32x16::all(0) > F32x16::all(0);
  std::size_t j = first;
  for (; j + kLanes <= stop; j += kLanes)
    found = found | (F32x16::load(numbers + j) >= smaller(wanted, F32x16::load(thresholds + j)));
  bool more = any(found);
  for (; j < stop; ++j) more |= numbers[j] >= threshold || numbers[j] >= thresholds[j];
  return more;
}

// Pushes the eligible rows of y to the heaps of x.
void scan_tile(const Tile& tile, const Heaps& heaps) {
  for (std::size_t r = 0; r < tile.x.size(); ++r) {
    const TopK best = heaps[r];
    const float *products = tile.products(r), *x = tile.X_of(r);
    for_each_column(
        tile, r,
        [&](std::size_t first, std::size_t stop)
            CFE_LAMBDA { return any_reaches(products, first, stop, static_cast<float>(best.worst() - tile.margin)); },
        [&](std::size_t j) CFE_LAMBDA {
          if (products[j] >= static_cast<float>(best.worst() - tile.margin))
            best.push(similarity(x, tile.Y_of(j), tile.d), tile.y.ids[j]);
        });
  }
}

// Pushes the rows of y to the heaps of x and the rows of x to the heaps of y: each pair is scored once. `thresholds`,
// (y.size(),), is written over.
void scan_tile_both(const Tile& tile, const Heaps& of_x, const Heaps& of_y, std::span<float> thresholds) {
  const auto screen = [&](const TopK& best) CFE_LAMBDA { return static_cast<float>(best.worst() - tile.margin); };
  for (std::size_t j = 0; j < tile.y.size(); ++j) thresholds[j] = screen(of_y[j]);
  for (std::size_t r = 0; r < tile.x.size(); ++r) {
    const TopK best = of_x[r];
    const float *products = tile.products(r), *x = tile.X_of(r);
    for_each_column(
        tile, r,
        [&](std::size_t first, std::size_t stop)
            CFE_LAMBDA { return any_reaches(products, first, stop, screen(best), thresholds.data()); },
        [&](std::size_t j) CFE_LAMBDA {
          if (!(products[j] >= screen(best)) && !(products[j] >= thresholds[j])) return;
          const float s = similarity(x, tile.Y_of(j), tile.d);
          best.push(s, tile.y.ids[j]);
          of_y[j].push(s, tile.x.ids[r]);
          thresholds[j] = screen(of_y[j]);
        });
  }
}

// Writes out the eligible pairs of a tile with similarity >= threshold, from row `first` on. A row is begun only if all
// of it would fit.
PairsWritten collect_tile(const Tile& tile, float threshold, std::size_t first_row, const PairBuffer& found) {
  std::size_t count = 0;
  const auto screen = static_cast<float>(threshold - tile.margin);
  for (std::size_t r = first_row; r < tile.x.size(); ++r) {
    if (count + tile.y.size() > found.rows.size()) return {count, r};
    const float *products = tile.products(r), *x = tile.X_of(r);
    for_each_column(
        tile, r,
        [&](std::size_t first, std::size_t stop) CFE_LAMBDA { return any_reaches(products, first, stop, screen); },
        [&](std::size_t j) CFE_LAMBDA {
          if (!(products[j] >= screen)) return;
          const float s = similarity(x, tile.Y_of(j), tile.d);
          if (!(s >= threshold)) return;
          found.rows[count] = static_cast<std::int32_t>(r);
          found.columns[count] = static_cast<std::int32_t>(j);
          found.scores[count] = s;
          ++count;
        });
  }
  return {count, tile.x.size()};
}

}  // namespace cfe::CFE_LEVEL

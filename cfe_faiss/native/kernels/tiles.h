// Exact search in a tile: products screen the pairs, and possible results become candidates, as in a scan of blocks.
#pragma once

#include "core/tiles.h"
#include "kernels/block_candidates.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr std::size_t kColumnsAtOnce = 64;  // products that are compared with a threshold at once

// Calls take(j, end) for the eligible columns of row r from `begin` to `stop` - 1, some at a time.
template <class Take>
CFE_INLINE void for_each_column(const Tile& tile, std::size_t r, std::size_t begin, std::size_t stop,
                                const Take& take) {
  const EligiblePlaces places =
      eligible_places(tile.y.labels.data(), tile.y.size(), tile.x.labels[r], tile.x.filter.policy);
  for (int side = 0; side < 2; ++side) {
    const std::size_t last = places.stop[side] < stop ? places.stop[side] : stop;
    for (std::size_t j = places.first[side] > begin ? places.first[side] : begin; j < last; j += kColumnsAtOnce)
      take(j, j + kColumnsAtOnce < last ? j + kColumnsAtOnce : last);
  }
}

// Whether any of `count` numbers reaches the threshold, or its entry of `thresholds`, if these are given.
CFE_INLINE bool any_reaches(const float* numbers, std::size_t count, float threshold,
                            const float* thresholds = nullptr) {
  const F32x16 wanted = F32x16::all(threshold);
  I32x16 found = F32x16::all(0) > F32x16::all(0);
  std::size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    const F32x16 least = thresholds != nullptr ? smaller(wanted, F32x16::load(thresholds + j)) : wanted;
    found = found | (F32x16::load(numbers + j) >= least);
  }
  bool more = any(found);
  for (; j < count; ++j) more |= numbers[j] >= threshold || (thresholds != nullptr && numbers[j] >= thresholds[j]);
  return more;
}

// The rows of a side as the only list of an index.
struct SideRows {
  std::int64_t starts[2];
  const std::uint8_t* codes;
  const std::int64_t* ids;
  BlocksView blocks{};

  SideRows(const TileSide& side, const Tile& tile)
      : starts{0, static_cast<std::int64_t>(side.size())},
        codes(reinterpret_cast<const std::uint8_t*>(side.X)),
        ids(side.ids) {
    blocks.rows = {.d = tile.d,
                   .row_size = 4 * tile.d,
                   .nlist = 1,
                   .codec = Codec::kFlat,
                   .starts = starts,
                   .codes = &codes,
                   .ids = &ids,
                   .labels = side.labels.data(),
                   .metric = tile.metric};
  }
};

CFE_INLINE Margin margin_of_tile(const Tile& tile) { return {static_cast<float>(tile.margin), 0}; }

// A part of a tile: the columns from `first` to `stop` - 1.
struct TilePart {
  const Tile& tile;
  const BlocksView& rows_of_y;
  const TileResults& of_x;
  const SearchMemory& memory;  // for one query
  const Scan* y;               // the columns as queries, or null
  std::size_t first, stop;
};

// Adds the candidates in some columns of row r.
template <bool Both>
CFE_INLINE void take_columns(const TilePart& part, std::size_t r, const Scan& x, std::size_t first, std::size_t stop) {
  const float* products = part.tile.products(r);
  for (std::size_t j = first; j < stop; j += kLanes) {
    const std::size_t left = stop - j < kLanes ? stop - j : kLanes;
    const F32x16 some = load_first(products + j, left);
    const Mask own = (1u << left) - 1, of_x = at_least(some, F32x16::all(x.memory.queries.threshold[0])) & own;
    if (of_x != 0) add_candidates(x, 0, lanes_from(j), of_x, some, some);
    if constexpr (Both) {
      const F32x16 thresholds = load_first(part.y->memory.queries.threshold + (j - part.first), left);
      for (Mask mask = at_least(some, thresholds) & own; mask != 0; mask &= mask - 1) {
        const std::size_t column = j + static_cast<std::size_t>(__builtin_ctz(mask));
        add_candidate(*part.y, column - part.first, static_cast<std::int32_t>(r), products[column]);
      }
    }
  }
}

template <bool Both>
CFE_INLINE void scan_part(const TilePart& part) {
  const Tile& tile = part.tile;
  for (std::size_t r = 0; r < tile.x.size(); ++r) {
    const auto number = static_cast<std::int64_t>(r);
    const GroupView group{.X = tile.X_of(r),
                          .labels = &tile.x.labels[r],
                          .size = 1,
                          .lists = nullptr,
                          .nprobe = 0,
                          .k = part.of_x.k,
                          .resume = true,
                          .order = &number,
                          .D = part.of_x.D,
                          .I = part.of_x.I,
                          .filter = tile.x.filter};
    const Scan x{part.rows_of_y, group, part.memory, tile.x.labels[r], false, margin_of_tile(tile)};
    begin_results(x, 0);
    for_each_column(tile, r, part.first, part.stop, [&](std::size_t first, std::size_t stop) CFE_LAMBDA {
      const float* of_y = Both ? part.y->memory.queries.threshold + (first - part.first) : nullptr;
      if (any_reaches(tile.products(r) + first, stop - first, part.memory.queries.threshold[0], of_y))
        take_columns<Both>(part, r, x, first, stop);
    });
    if (part.memory.candidates.counts[0] > 0) end_all_results(x);
  }
}

// Adds the eligible rows of y to the results of x and, unless `of_y` is null, the rows of x to the results of y, for
// `columns` rows of y at a time. `memory` is for one query, `of_columns` for these rows.
void scan_tile(const Tile& tile, const TileResults& of_x, const TileResults* of_y, const SearchMemory& memory,
               const SearchMemory& of_columns, std::size_t columns) {
  const SideRows x_rows(tile.x, tile), y_rows(tile.y, tile);
  if (of_y == nullptr) return scan_part<false>({tile, y_rows.blocks, of_x, memory, nullptr, 0, tile.y.size()});
  for (std::size_t first = 0, stop; first < tile.y.size(); first = stop) {
    stop = first + columns < tile.y.size() ? first + columns : tile.y.size();
    const TopK best = (*of_y)[first];
    const GroupView group{.X = tile.Y_of(first),
                          .labels = tile.y.labels.data() + first,
                          .size = stop - first,
                          .lists = nullptr,
                          .nprobe = 0,
                          .k = best.k,
                          .resume = true,
                          .D = best.D,
                          .I = best.I,
                          .filter = tile.y.filter.from(first)};
    const Scan y{x_rows.blocks, group, of_columns, 0, true, margin_of_tile(tile)};
    for (std::size_t q = 0; q < group.size; ++q) begin_results(y, q);
    scan_part<true>({tile, y_rows.blocks, of_x, memory, &y, first, stop});
    end_all_results(y);
  }
}

// Writes out the eligible pairs of a tile with similarity >= threshold, from row `first_row` on. A row is begun only if
// all of it would fit. Returns the number of pairs, and the next row.
std::pair<std::size_t, std::size_t> collect_tile(const Tile& tile, float threshold, std::size_t first_row,
                                                 const PairBuffer& found) {
  std::size_t count = 0;
  const FilterView& filter = tile.x.filter;
  // Pairs that must not be found have products of -infinity, which no threshold may reach.
  const auto lowered = static_cast<float>(std::max<double>(threshold - tile.margin, kPadding));
  const float screen = CFE_LEVEL::screening_threshold(tile.metric, static_cast<float>(tile.margin), lowered);
  for (std::size_t r = first_row; r < tile.x.size(); ++r) {
    if (count + tile.y.size() > found.rows.size()) return {count, r};
    const float *products = tile.products(r), *x = tile.X_of(r);
    for_each_column(tile, r, 0, tile.y.size(), [&](std::size_t first, std::size_t stop) CFE_LAMBDA {
      if (!any_reaches(products + first, stop - first, screen)) return;
      for (std::size_t j = first; j < stop; ++j) {
        if (!(products[j] >= screen)) continue;
        const float s = score_of(tile.metric, x, tile.Y_of(j), tile.d);
        if (!(s >= threshold)) continue;
        if (filter.tests && (!filter.holds(s) || (filter.columns > 0 && !filter.fits(r, j)) ||
                             filter.excludes_label(r, tile.y.labels[j]) ||
                             (filter.ids_each > 0 && filter.excludes_id(r, tile.y.ids[j]))))
          continue;
        found.rows[count] = static_cast<std::int32_t>(r);
        found.columns[count] = static_cast<std::int32_t>(j);
        found.scores[count] = s;
        ++count;
      }
    });
  }
  return {count, tile.x.size()};
}

}  // namespace cfe::CFE_LEVEL::block

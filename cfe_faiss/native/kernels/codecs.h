// Rows of each codec: decoding, screening and scoring; see cfe_faiss/rows/codecs.py.
#pragma once

#include "core/scan.h"
#include "kernels/similarity.h"
#include "simd/load.h"

namespace cfe::CFE_LEVEL {

// Components of a row from i on in its codec: 16, or n < 16.
template <Codec codec, class... Count>
CFE_INLINE F32x16 components(const std::uint8_t* row, std::size_t i, Count... n) {
  if constexpr (codec == Codec::kFlat)
    return load_floats(row + 4 * i, n...);
  else if constexpr (codec == Codec::kFp16)
    return load_halves(row + 2 * i, n...);
  else
    return load_bytes(row + i, n...);
}

// Decodes bytes. FAISS rounds once if it decodes eight components at once, else twice; the bits must be the same here.
template <class... Count>
CFE_INLINE F32x16 in_range(const RowsView& rows, const F32x16& bytes, std::size_t i, Count... n) {
  const auto* low_bytes = reinterpret_cast<const std::uint8_t*>(rows.low + i);
  const auto* spread_bytes = reinterpret_cast<const std::uint8_t*>(rows.spread + i);
  const F32x16 low = load_floats(low_bytes, n...), spread = load_floats(spread_bytes, n...);
  const F32x16 share = (bytes + F32x16::all(0.5f)) / F32x16::all(255.0f);
  return rows.d % kDecodedAtOnce == 0 ? rounded_once(share, spread, low) : low + share * spread;
}

template <Codec codec>
CFE_INLINE void decode_row(const RowsView& rows, const std::uint8_t* row, float* x) {
  if constexpr (codec == Codec::kFlat) {
    std::memcpy(x, row, 4 * rows.d);
    return;
  }
  const auto decode = [&](std::size_t i, auto... n) CFE_LAMBDA {
    const F32x16 v = components<codec>(row, i, n...);
    if constexpr (codec == Codec::kSq8)
      return in_range(rows, v, i, n...);
    else
      return v;
  };
  std::size_t i = 0;
  for (; i + kLanes <= rows.d; i += kLanes) decode(i).store(x + i);
  if (i == rows.d) return;
  float last[kLanes];
  decode(i, rows.d - i).store(last);
  std::memcpy(x + i, last, 4 * (rows.d - i));
}

// Writes factors of the codes of a row, (d,), whose sum of products estimates x·row; returns the constant to add to it.
// For distances, the query itself.
template <Codec codec, bool kDistance>
CFE_INLINE float screening_weights(const RowsView& rows, const float* x, float* weights) {
  if constexpr (codec != Codec::kSq8 || kDistance) {
    std::memcpy(weights, x, 4 * rows.d);
    return 0;
  }
  double offset = 0;
  for (std::size_t i = 0; i < rows.d; ++i) {
    const double step = static_cast<double>(rows.spread[i]) / 255;
    weights[i] = static_cast<float>(x[i] * step);
    offset += static_cast<double>(x[i]) * (rows.low[i] + 0.5 * step);
  }
  return static_cast<float>(offset);
}

inline constexpr std::size_t kScreened = 4;  // rows at once

// The weights after the last multiple of 16, at the lanes of the last 16 components; all weights if d < 16.
CFE_INLINE F32x16 last_weights(const float* weights, std::size_t d) {
  if (d < kLanes) return load_floats(reinterpret_cast<const std::uint8_t*>(weights), d);
  float last[kLanes] = {};
  for (std::size_t i = d - d % kLanes; i < d; ++i) last[i + kLanes - d] = weights[i];
  return F32x16::load(last);
}

// The products of a query, prepared by `screening_weights` and `last_weights`, and some rows, summed in any order; or
// their squared distances from it, decoded.
template <Codec codec, bool kDistance>
CFE_INLINE Float4 screen_rows(const RowsView& rows, const float* weights, const F32x16& last,
                              const std::uint8_t* const* row) {
  alignas(64) static constexpr float kOnes[2 * kLanes] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const std::size_t d = rows.d;
  F32x16 sums[kScreened];
  const auto add = [&](const F32x16& w, bool overlaps, std::size_t i, auto... n) CFE_LAMBDA {
    for (std::size_t r = 0; r < kScreened; ++r) {
      F32x16 own = components<codec>(row[r], i, n...);
      if constexpr (!kDistance) {
        sums[r] = fused(w, own, sums[r]);
        continue;
      }
      if constexpr (codec == Codec::kSq8) own = in_range(rows, own, i, n...);
      if (overlaps) own = own * F32x16::load(kOnes + d % kLanes);  // 0 at the components that were compared before
      sums[r] = fused(w - own, w - own, sums[r]);
    }
  };
  for (F32x16& total : sums) total = F32x16::all(0);
  for (std::size_t i = 0; i + kLanes <= d; i += kLanes) add(F32x16::load(weights + i), false, i);
  if (d < kLanes)
    add(last, false, std::size_t{0}, d);
  else if (d % kLanes != 0)
    add(last, true, d - kLanes);
  return sums_of(in_four(sums[0]), in_four(sums[1]), in_four(sums[2]), in_four(sums[3]));
}

template <Codec codec>
void gather_of(const RowsView& rows, std::span<const std::int64_t> wanted, float* X, std::int64_t* ids) {
  std::size_t list = 0;
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    list = rows.list_of(wanted[r], list);
    const auto place = static_cast<std::size_t>(wanted[r] - rows.starts[list]);
    decode_row<codec>(rows, rows.codes[list] + rows.row_size * place, X + r * rows.d);
    ids[r] = rows.ids[list][place];
  }
}

// Calls function<codec>(arguments).
#define CFE_WITH_CODEC(codec, function, ...) \
  if (codec == Codec::kFlat)                 \
    function<Codec::kFlat>(__VA_ARGS__);     \
  else if (codec == Codec::kFp16)            \
    function<Codec::kFp16>(__VA_ARGS__);     \
  else                                       \
    function<Codec::kSq8>(__VA_ARGS__);

// Calls take(home, place) for each row of a list, with its list in FAISS. The list is FAISS's or one of references.
template <class Take>
CFE_INLINE void for_each_member(const ListsView& lists, std::size_t list, const Take& take) {
  const RowsView& rows = lists.rows;
  if (list < rows.nlist) {
    const auto size = static_cast<std::size_t>(rows.starts[list + 1] - rows.starts[list]);
    for (std::size_t place = 0; place < size; ++place) take(list, place);
    return;
  }
  const std::size_t group = list - rows.nlist;
  std::size_t home = 0;
  for (std::int64_t r = lists.reference_starts[group]; r < lists.reference_starts[group + 1]; ++r) {
    const std::int64_t row = lists.references[r];
    home = rows.list_of(row, home);
    take(home, static_cast<std::size_t>(row - rows.starts[home]));
  }
}

// Copies vectors and ids of some rows: X, (wanted, d), and ids, (wanted,).
void gather(const RowsView& rows, std::span<const std::int64_t> wanted, float* X, std::int64_t* ids) {
  CFE_WITH_CODEC(rows.codec, gather_of, rows, wanted, X, ids)
}

}  // namespace cfe::CFE_LEVEL

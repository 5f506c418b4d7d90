#include "core/scan_memory.h"

namespace cfe {

namespace {

constexpr std::size_t kWarmUpBlocks = 2;  // per result
constexpr std::size_t kWarmUpLanes = 3;
constexpr std::size_t kMostWarmUp = 40;  // results; for more, warming up takes too much memory

}  // namespace

template <class Number>
Number* ScanMemory::take(std::size_t size) {
  return reinterpret_cast<Number*>(parts_.emplace_back(size * sizeof(Number)).data());
}

const SearchMemory& ScanMemory::of(std::size_t queries, const ScanShape& shape) {
  if (shape == shape_ && queries <= queries_) return view_;
  queries_ = 0;  // until all memory is there
  parts_.clear();
  const bool bytes = shape.words > 0;
  const std::size_t results = shape.k * shape.copies, in_lanes = padded(queries);
  const std::size_t capacity = padded(4 * shape.k) + 4 * kBlockRows;
  const bool few = shape.warms_up && results <= kMostWarmUp;
  const std::size_t blocks = shape.bounded > 0 ? shape.bounded : few ? kWarmUpBlocks * results : 0;
  const std::size_t width = padded(kWarmUpLanes * results), scores = padded(capacity + shape.k);
  // Floats are scored at the end. Bytes have wider bounds, so their candidates are scored early. Without a warm-up,
  // few candidates give a threshold early.
  std::size_t enough = 2 * shape.k + kBlockRows;
  if (shape.warms_up) enough = capacity - kBlockRows;
  if (bytes && few && shape.bounded == 0) enough = kBlockRows;
  QueryStatistics& statistics = view_.queries;
  for (float** part :
       {&statistics.norm, &statistics.error, &statistics.tail, &statistics.scale, &statistics.inverse_scale,
        &statistics.threshold, &statistics.low, &statistics.high, &statistics.wanted})
    *part = take<float>(in_lanes);
  view_.candidates = {.capacity = capacity,
                      .enough = enough,
                      .lower = take<float>(queries * capacity),
                      .upper = take<float>(bytes ? queries * capacity : 0),
                      .lanes = take<std::int32_t>(queries * capacity),
                      .counts = take<std::size_t>(queries),
                      .found = take<std::size_t>(queries)};
  view_.warm_up = {.blocks = blocks,
                   .width = width,
                   .upper = take<float>(queries * blocks * kBlockRows),
                   .maxima = take<float>(blocks > 0 ? queries * width : 0),
                   .kept = take<std::int32_t>((blocks + 1) * kBlockRows),
                   .seen = take<std::int32_t>(blocks)};
  view_.block = take<float>(in_lanes * shape.d);
  view_.rotated = take<float>(kBlockRows * shape.rotated);
  view_.centred = take<float>(kBlockRows * shape.centred);
  view_.words = take<std::int32_t>(in_lanes * shape.words);
  view_.row = take<float>(shape.d);
  view_.wide = take<double>(shape.d);
  view_.scores = take<float>(scores);
  view_.ids = take<std::int64_t>(scores);
  view_.selection = take<std::int64_t>(memory_of_best(scores));
  shape_ = shape;
  queries_ = queries;
  return view_;
}

}  // namespace cfe

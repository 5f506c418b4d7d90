#include "core/scan_memory.h"

#include "core/aligned.h"

namespace cfe {

namespace {

constexpr std::size_t kWarmUpBlocks = 2;  // per result
constexpr std::size_t kWarmUpLanes = 3;
constexpr std::size_t kMostWarmUp = 40;  // results; for more, warming up takes too much memory

}  // namespace

struct ScanMemory::Parts {
  Parts(std::size_t queries, const ScanShape& shape)
      : capacity(padded(4 * shape.k) + 4 * kBlockRows),
        warm_up(shape.warms_up && shape.k * shape.copies <= kMostWarmUp ? kWarmUpBlocks * shape.k * shape.copies : 0),
        width(padded(kWarmUpLanes * shape.k * shape.copies)),
        lanes_of_queries(padded(queries)),
        statistics(9 * lanes_of_queries),
        lower(queries * capacity),
        upper(shape.words > 0 ? queries * capacity : 0),
        lanes(queries * capacity),
        counts(2 * queries),
        warm_upper(queries * warm_up * kBlockRows),
        maxima(warm_up > 0 ? queries * width : 0),
        kept(warm_up * kBlockRows + kBlockRows),
        seen(warm_up),
        block((lanes_of_queries + 1) * shape.d),
        rotated(kBlockRows * shape.rotated),
        centred(kBlockRows * shape.centred),
        words(lanes_of_queries * shape.words),
        wide(shape.d),
        scores(padded(capacity + shape.k)),
        ids(scores.size() + memory_of_best(scores.size())) {
    float* at = statistics.data();
    QueryStatistics& own = view.queries;
    for (float** part : {&own.norm, &own.error, &own.tail, &own.scale, &own.inverse_scale, &own.threshold, &own.low,
                         &own.high, &own.wanted}) {
      *part = at;
      at += lanes_of_queries;
    }
    // Floats are scored at the end. Bytes have wider bounds, so their candidates are scored early. Without a warm-up,
    // few candidates give a threshold early.
    const std::size_t enough = shape.words > 0 && warm_up > 0 ? kBlockRows
                               : shape.warms_up               ? capacity - kBlockRows
                                                              : 2 * shape.k + kBlockRows;
    view.candidates = {capacity,     enough,        lower.data(),           upper.data(),
                       lanes.data(), counts.data(), counts.data() + queries};
    view.warm_up = {warm_up, width, warm_upper.data(), maxima.data(), kept.data(), seen.data()};
    view.block = block.data();
    view.row = block.data() + lanes_of_queries * shape.d;
    view.rotated = rotated.data();
    view.centred = centred.data();
    view.words = words.data();
    view.wide = wide.data();
    view.scores = scores.data();
    view.ids = ids.data();
    view.selection = ids.data() + scores.size();
  }

  std::size_t capacity, warm_up, width, lanes_of_queries;
  AlignedVector<float> statistics, lower, upper;
  AlignedVector<std::int32_t> lanes;
  AlignedVector<std::size_t> counts;
  AlignedVector<float> warm_upper, maxima;
  AlignedVector<std::int32_t> kept, seen;
  AlignedVector<float> block, rotated, centred;
  AlignedVector<std::int32_t> words;
  AlignedVector<double> wide;
  AlignedVector<float> scores;
  AlignedVector<std::int64_t> ids;
  SearchMemory view{};
};

ScanMemory::ScanMemory() = default;
ScanMemory::~ScanMemory() = default;

const SearchMemory& ScanMemory::of(std::size_t queries, const ScanShape& shape) {
  if (!parts_ || shape != shape_ || queries > queries_) {
    parts_.reset();
    parts_ = std::make_unique<Parts>(queries, shape);
    shape_ = shape;
    queries_ = queries;
  }
  return parts_->view;
}

}  // namespace cfe

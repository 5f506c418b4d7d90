// Rows in lists with separate memory, and plain loops over them that give the expected results.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/class_centroids.h"
#include "core/common.h"
#include "core/rows.h"

namespace cfe::tests {

// Plain arithmetic: a standard distribution is another one in each library.
inline std::vector<float> random_numbers(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> numbers(size);
  for (float& number : numbers) number = static_cast<float>(static_cast<double>(generator()) / 2147483648.0 - 1.0);
  return numbers;
}

inline void normalise(std::span<float> x) {
  double square = 0;
  for (const float value : x) square += static_cast<double>(value) * value;
  if (square > 0)
    for (float& value : x) value = static_cast<float>(value / std::sqrt(square));
}

inline std::vector<float> random_unit_rows(std::size_t n, std::size_t d, unsigned seed) {
  std::vector<float> X = random_numbers(n * d, seed);
  for (std::size_t row = 0; row < n; ++row) normalise(std::span(X).subspan(row * d, d));
  return X;
}

// The sum of kernels/similarity.h in its written-down order, number by number.
inline double plain_term(Metric metric, float x, float y) {
  const double a = x, b = y;
  return metric == Metric::kL2 ? -((a - b) * (a - b)) : a * b;
}

inline float plain_sum(Metric metric, const float* x, const float* y, std::size_t d) {
  double lanes[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= d; i += 16)
    for (std::size_t lane = 0; lane < 16; ++lane) lanes[lane] += plain_term(metric, x[i + lane], y[i + lane]);
  for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += lanes[lane + 8];
  for (std::size_t width = 4; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] = lanes[2 * lane] + lanes[2 * lane + 1];
  double total = lanes[0];
  for (; i < d; ++i) total += plain_term(metric, x[i], y[i]);
  return static_cast<float>(total);
}

inline float plain_similarity(const float* x, const float* y, std::size_t d) {
  return plain_sum(Metric::kCosine, x, y, d);
}

inline float plain_tanimoto(const float* x, const float* y, std::size_t d) {
  double common = 0, either = 0;
  for (std::size_t i = 0; i < d; ++i) {
    common += x[i] == 1 && y[i] == 1;
    either += x[i] == 1 || y[i] == 1;
  }
  return either == 0 ? 1.0F : static_cast<float>(common / either);
}

inline float plain_score(Metric metric, const float* x, const float* y, std::size_t d) {
  if (metric == Metric::kTanimoto) return plain_tanimoto(x, y, d);
  const float sum = plain_sum(metric, x, y, d);
  if (metric != Metric::kCosine) return sum;
  if (sum >= 1 - 11 * 0x1p-24F && std::equal(x, x + d, y)) return 1;
  return std::clamp(sum, -1.0F, 1.0F);
}

// Bounds the rounding of a product of two unit rows, summed in float32 in any order.
inline float rounding_of(std::size_t d) { return static_cast<float>(d + 16) * 0x1p-24F; }

// A filter for the allowed rows, or for all if there are none.
inline FilterView filter_of(std::span<const bool> allowed) {
  FilterView filter;
  filter.allowed = allowed.empty() ? nullptr : allowed.data();
  filter.finish();
  return filter;
}

// The k best, in order.
struct Found {
  std::vector<float> D;
  std::vector<std::int64_t> I;
  explicit Found(std::size_t k) : D(k), I(k) {}
  bool operator==(const Found&) const = default;
  TopK results() { return {D.data(), I.data(), D.size()}; }
};

// Changes rows: lengths repeat every four rows, before an offset is added.
struct Lengths {
  float offset = 0;
  std::array<float, 4> lengths{1, 1, 1, 1};
  void apply(std::size_t row, std::span<float> x) const {
    for (float& value : x) value = offset + lengths[row % 4] * value;
  }
};

// Unit rows of random lists, sorted by label. Ids are in no order and reach up to the greatest one, every fifth row is
// equal to another, and some rows have no known label.
struct Sample {
  std::size_t d;
  Metric metric = Metric::kCosine;
  std::vector<std::int64_t> starts{0};
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> ids;
  std::vector<float> X;
  std::vector<std::vector<float>> vectors;         // of each list, as in FAISS
  std::vector<std::vector<std::int64_t>> own_ids;  // the same
  std::vector<std::int32_t> references;            // rows of the lists of further partitions
  std::vector<std::int64_t> reference_starts{0};

  static constexpr std::int64_t kGreatestId = std::numeric_limits<std::int64_t>::max() - 1;

  Sample(std::size_t length, const std::vector<std::size_t>& sizes, unsigned seed, std::uint32_t classes = 3)
      : d(length) {
    std::mt19937 generator(seed);
    for (const std::size_t size : sizes) {
      for (std::size_t row = 0; row < size; ++row)
        labels.push_back(static_cast<std::int32_t>(generator() % (classes + 1)) - (generator() % 4 == 0));
      for (std::int32_t& label : labels) label = std::min(label, static_cast<std::int32_t>(classes) - 1);
      std::sort(labels.begin() + starts.back(), labels.end());
      starts.push_back(static_cast<std::int64_t>(labels.size()));
    }
    X = random_unit_rows(n(), d, seed);
    for (std::size_t row = 4; row < n(); row += 5) std::copy_n(x(row - 4).begin(), d, X.begin() + row * d);
    for (std::size_t row = 0; row < n(); ++row)
      ids.push_back(row % 2 == 0 ? kGreatestId - static_cast<std::int64_t>(row * 3 % 1000003)
                                 : static_cast<std::int64_t>(row * 7 % 1000003));
    std::shuffle(ids.begin(), ids.end(), generator);
    for (std::size_t list = 0; list < sizes.size(); ++list) {
      const auto first = starts[list], last = starts[list + 1];
      vectors.emplace_back(X.begin() + first * static_cast<std::int64_t>(d),
                           X.begin() + last * static_cast<std::int64_t>(d));
      own_ids.emplace_back(ids.begin() + first, ids.begin() + last);
    }
  }

  void change(const Lengths& change) {
    for (std::size_t row = 0; row < n(); ++row) change.apply(row, std::span(X).subspan(row * d, d));
    for (std::size_t list = 0; list < nlist(); ++list)
      std::copy_n(X.begin() + starts[list] * static_cast<std::int64_t>(d), vectors[list].size(), vectors[list].begin());
  }

  // Puts each row into one of `number` lists of references.
  void add_partition(std::size_t number, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<std::vector<std::int32_t>> of_list(number);
    for (std::size_t row = 0; row < n(); ++row) of_list[generator() % number].push_back(static_cast<std::int32_t>(row));
    for (const auto& rows : of_list) {
      references.insert(references.end(), rows.begin(), rows.end());
      reference_starts.push_back(static_cast<std::int64_t>(references.size()));
    }
  }

  std::size_t n() const { return labels.size(); }
  std::size_t nlist() const { return starts.size() - 1; }
  std::size_t lists() const { return nlist() + reference_starts.size() - 1; }
  std::span<const float> x(std::size_t row) const { return std::span(X).subspan(row * d, d); }

  // The rows, with codes of any codec in place of the vectors.
  template <class Code>
  Rows rows_in(const RowsFormat& format, const std::vector<std::vector<Code>>& codes) const {
    RowsMemory memory{.starts = starts, .codes = {}, .ids = {}, .labels = labels, .pq_codes = {}};
    for (std::size_t list = 0; list < nlist(); ++list) {
      memory.codes.push_back(reinterpret_cast<const std::uint8_t*>(codes[list].data()));
      memory.ids.push_back(own_ids[list].data());
    }
    return {format, std::move(memory)};
  }
  Rows rows() const { return rows_in({d, Codec::kFlat, {}, metric}, vectors); }

  // The rows of a list, of any partition.
  std::vector<std::size_t> rows_of(std::size_t list) const {
    std::vector<std::size_t> rows;
    if (list < nlist())
      for (auto row = starts[list]; row < starts[list + 1]; ++row) rows.push_back(static_cast<std::size_t>(row));
    else
      for (auto at = reference_starts[list - nlist()]; at < reference_starts[list - nlist() + 1]; ++at)
        rows.push_back(static_cast<std::size_t>(references[static_cast<std::size_t>(at)]));
    return rows;
  }

  // The best rows of some lists (-1: none) of known labels that differ from that of a query.
  Found search(std::span<const float> query, std::int32_t label, std::span<const std::int64_t> in, std::size_t k,
               const std::vector<bool>& allowed = {}) const {
    std::vector<std::pair<float, std::int64_t>> all;
    std::vector<bool> seen(n(), false);
    for (const std::int64_t list : in)
      for (const std::size_t row : list < 0 ? std::vector<std::size_t>() : rows_of(static_cast<std::size_t>(list))) {
        if (seen[row] || labels[row] == label || labels[row] == kUnknown || (!allowed.empty() && !allowed[row]))
          continue;
        seen[row] = true;
        all.emplace_back(plain_score(metric, query.data(), x(row).data(), d), ids[row]);
      }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.first > b.first || (a.first == b.first && a.second < b.second);
    });
    Found found(k);
    for (std::size_t place = 0; place < k; ++place) {
      found.D[place] = place < all.size() ? all[place].first : kPadding;
      found.I[place] = place < all.size() ? all[place].second : -1;
    }
    return found;
  }
};

// The normalised mean of the members of known label of each list, and those without the members of one class.
struct Means {
  std::size_t d, lists;
  std::vector<float> means, class_means;
  std::vector<std::uint8_t> filled, class_filled;  // bytes: a vector of bool is no array
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> starts{0}, of_list;

  explicit Means(const Sample& sample) : d(sample.d), lists(sample.lists()) {
    for (std::size_t list = 0; list < lists; ++list) filled.push_back(add(sample, list, kUnknown, means));
    const std::int32_t greatest =
        sample.labels.empty() ? kUnknown : *std::max_element(sample.labels.begin(), sample.labels.end());
    for (std::int32_t label = 0; label <= greatest; ++label) {
      labels.push_back(label);
      for (std::size_t list = 0; list < lists; ++list) {
        const auto rows = sample.rows_of(list);
        if (std::none_of(rows.begin(), rows.end(), [&](std::size_t row) { return sample.labels[row] == label; }))
          continue;
        of_list.push_back(static_cast<std::int64_t>(list));
        class_filled.push_back(add(sample, list, label, class_means));
      }
      starts.push_back(static_cast<std::int64_t>(of_list.size()));
    }
  }

  ListMeans view() const {
    return {{means.data(), lists, d}, flags(filled),   labels, starts, of_list, {class_means.data(), of_list.size(), d},
            flags(class_filled),      Metric::kCosine, {}};
  }

  // The mean that a list is ranked by for a label; none if the list holds nothing for it.
  const float* mean_for(std::size_t list, std::int32_t label) const {
    for (std::size_t i = 0; i < labels.size(); ++i)
      for (auto e = static_cast<std::size_t>(starts[i]); e < static_cast<std::size_t>(starts[i + 1]); ++e)
        if (labels[i] == label && of_list[e] == static_cast<std::int64_t>(list))
          return class_filled[e] != 0 ? class_means.data() + e * d : nullptr;
    return filled[list] != 0 ? means.data() + list * d : nullptr;
  }

 private:
  static std::span<const bool> flags(const std::vector<std::uint8_t>& bytes) {
    return {reinterpret_cast<const bool*>(bytes.data()), bytes.size()};
  }
  static std::uint8_t add(const Sample& sample, std::size_t list, std::int32_t without, std::vector<float>& to) {
    to.resize(to.size() + sample.d, 0.0F);
    const std::span<float> mean = std::span(to).last(sample.d);
    bool any = false;
    for (const std::size_t row : sample.rows_of(list)) {
      if (sample.labels[row] == kUnknown || sample.labels[row] == without) continue;
      any = true;
      for (std::size_t i = 0; i < sample.d; ++i) mean[i] += sample.x(row)[i];
    }
    normalise(mean);
    return any ? 1 : 0;
  }
};

inline Matrix<const float> as_matrix(const std::vector<float>& X, std::size_t d) { return {X.data(), X.size() / d, d}; }

}  // namespace cfe::tests

// Scans of given lists, by vectors of each codec and by product-quantizer codes; and the (list, class) centroids.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "core/kernels.h"
#include "core/list_scan.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

namespace {

using tests::Found;
using tests::Sample;

// The number that a half of sign, exponent and fraction stands for; no subnormal one.
float half_to_float(std::uint16_t half) {
  const float fraction = 1 + static_cast<float>(half & 1023) / 1024;
  return std::ldexp((half & 0x8000) != 0 ? -fraction : fraction, (half >> 10 & 31) - 15);
}

// A sample whose rows are kept in codes: its own vectors are what these stand for.
struct Coded {
  Sample sample;
  Codec codec;
  std::vector<float> levels;
  std::vector<std::vector<std::uint8_t>> codes;  // of each list

  Coded(Sample own, Codec with) : sample(std::move(own)), codec(with) {
    const std::size_t d = sample.d, size = codec == Codec::kFlat ? 4 * d : codec == Codec::kFp16 ? 2 * d : d;
    if (codec == Codec::kSq8) {
      levels = tests::random_numbers(2 * d, 8);
      for (float& level : levels) level /= static_cast<float>(d);
    }
    std::mt19937 generator(1);
    for (std::size_t list = 0; list < sample.nlist(); ++list) {
      codes.emplace_back(size * sample.rows_of(list).size());
      for (std::size_t place = 0; place < sample.rows_of(list).size(); ++place) {
        const std::size_t row = static_cast<std::size_t>(sample.starts[list]) + place;
        for (std::size_t i = 0; i < d; ++i)
          sample.X[row * d + i] = encode(sample.X[row * d + i], i, codes[list].data() + place * size, generator);
      }
    }
  }

  // Writes component i of a row, and returns what it stands for then.
  float encode(float x, std::size_t i, std::uint8_t* row, std::mt19937& generator) const {
    if (codec == Codec::kFlat) {
      std::memcpy(row + 4 * i, &x, 4);
      return x;
    }
    if (codec == Codec::kFp16) {
      const auto half = static_cast<std::uint16_t>((generator() & 0x83FF) | (8 + generator() % 5) << 10);
      std::memcpy(row + 2 * i, &half, 2);
      return half_to_float(half);
    }
    row[i] = static_cast<std::uint8_t>(generator());
    const float share = (static_cast<float>(row[i]) + 0.5F) / 255.0F, low = levels[i], spread = levels[sample.d + i];
    return sample.d % kDecodedAtOnce == 0 ? std::fma(share, spread, low) : low + share * spread;
  }

  Rows rows() const { return sample.rows_in({sample.d, codec, levels, sample.metric}, codes); }
};

// Lists that queries probe, some twice the same row, and -1.
std::vector<std::int64_t> some_lists(std::size_t lists, std::size_t nq, std::size_t nprobe) {
  std::vector<std::int64_t> chosen;
  chosen.reserve(nq * nprobe);
  for (std::size_t place = 0; place < nq * nprobe; ++place)
    chosen.push_back(static_cast<std::int64_t>((place + place / nprobe) % (lists + 1)) - 1);
  return chosen;
}

// Each codec with each metric.
std::vector<std::pair<Codec, Metric>> kinds() {
  std::vector<std::pair<Codec, Metric>> found;
  for (const Codec codec : {Codec::kFlat, Codec::kFp16, Codec::kSq8})
    for (const Metric metric : {Metric::kCosine, Metric::kIp, Metric::kL2}) found.emplace_back(codec, metric);
  return found;
}

}  // namespace

TEST(lists_of_each_codec_are_scanned_as_plain_loops_do) {
  for (const auto& [codec, metric] : kinds())
    for (const std::size_t d : {1, 7, 8, 16, 24, 37})
      for (const bool further : {false, true}) {
        Sample own(d, {1, 0, 20, 7, 50}, 3);
        own.metric = metric;
        if (further) own.add_partition(3, 2);
        const Coded coded(std::move(own), codec);
        const Sample& sample = coded.sample;
        const Rows rows = coded.rows();
        const ListScan scan(rows, sample.references, sample.reference_starts);
        const std::size_t nq = 9, k = 6, nprobe = std::min<std::size_t>(4, scan.size());
        const std::vector<float> X = tests::random_unit_rows(nq, d, 4);
        const std::vector<std::int64_t> lists = some_lists(scan.size(), nq, nprobe);
        std::vector<std::uint8_t> bytes(sample.n());
        for (std::size_t row = 0; row < bytes.size(); ++row) bytes[row] = row % 4 != 0;
        std::vector<std::int32_t> labels(nq);
        for (std::size_t q = 0; q < nq; ++q) labels[q] = static_cast<std::int32_t>(q % 4);
        for (const bool selected : {false, true}) {
          const std::span<const bool> allowed(reinterpret_cast<const bool*>(bytes.data()), selected ? bytes.size() : 0);
          std::vector<float> D(nq * k);
          std::vector<std::int64_t> I(nq * k);
          // Codes stand for rows that are longer or shorter than 1.
          scan.scan({{X.data(), nq, d}, labels, {lists.data(), nq, nprobe}, tests::filter_of(allowed)},
                    100 * tests::rounding_of(d), {D.data(), nq, k}, {I.data(), nq, k});
          for (std::size_t q = 0; q < nq; ++q) {
            const Found expected =
                sample.search(std::span(X).subspan(q * d, d), labels[q], std::span(lists).subspan(q * nprobe, nprobe),
                              k, std::vector<bool>(allowed.begin(), allowed.end()));
            CHECK(std::equal(expected.I.begin(), expected.I.end(), I.begin() + static_cast<std::ptrdiff_t>(q * k)));
            CHECK(std::equal(expected.D.begin(), expected.D.end(), D.begin() + static_cast<std::ptrdiff_t>(q * k)));
          }
        }
        std::vector<std::int64_t> wanted{static_cast<std::int64_t>(sample.n()) - 1, 0, 1, 0}, ids(4);
        std::vector<float> gathered(4 * d);
        rows.gather(wanted, gathered.data(), ids.data());
        for (std::size_t r = 0; r < 4; ++r) {
          const auto row = static_cast<std::size_t>(wanted[r]);
          CHECK(ids[r] == sample.ids[row]);
          CHECK(std::memcmp(gathered.data() + r * d, sample.x(row).data(), 4 * d) == 0);
        }
        wanted[0] = static_cast<std::int64_t>(sample.n());
        CHECK_THROWS(std::out_of_range, "no row", rows.gather(wanted, gathered.data(), ids.data()));
      }
}

TEST(rows_of_bits_have_the_quotient_of_two_counts) {
  for (const std::size_t d : {1, 16, 37, 130}) {
    Sample sample(d, {60}, 3);
    sample.metric = Metric::kTanimoto;
    for (float& value : sample.X) value = value > 0 ? 1.0F : 0.0F;
    sample.vectors[0] = sample.X;
    const Rows rows = sample.rows();
    const std::vector<std::int64_t> zero{0};
    const ListScan scan(rows, {}, zero);
    const std::size_t nq = 5, k = 60;
    std::vector<float> X(sample.X.begin(), sample.X.begin() + static_cast<std::ptrdiff_t>(nq * d));
    std::fill_n(X.begin(), d, 0.0F);  // a query without ones
    const std::vector<std::int32_t> labels(nq, 0);
    const std::vector<std::int64_t> lists(nq, 0);
    std::vector<float> D(nq * k);
    std::vector<std::int64_t> I(nq * k);
    scan.scan({{X.data(), nq, d}, labels, {lists.data(), nq, 1}, {}}, tests::rounding_of(d), {D.data(), nq, k},
              {I.data(), nq, k});
    for (std::size_t q = 0; q < nq; ++q) {
      const Found expected = sample.search(std::span(X).subspan(q * d, d), 0, std::span(lists).first(1), k);
      CHECK(std::equal(expected.I.begin(), expected.I.end(), I.begin() + static_cast<std::ptrdiff_t>(q * k)));
      CHECK(std::equal(expected.D.begin(), expected.D.end(), D.begin() + static_cast<std::ptrdiff_t>(q * k)));
    }
  }
}

TEST(of_the_best_by_codes_the_best_by_vectors_are_found) {
  const std::size_t parts = 3, width = 4, d = parts * width, nq = 5, k = 4, nprobe = 3;
  const Sample sample(d, {1, 0, 30, 17}, 5);
  std::mt19937 generator(2);
  std::vector<std::vector<std::uint8_t>> pq_codes;
  RowsMemory memory{
      .starts = sample.starts, .codes = {}, .ids = {}, .labels = sample.labels, .pq_codes = {}, .pq_code_size = parts};
  for (std::size_t list = 0; list < sample.nlist(); ++list) {
    pq_codes.emplace_back(parts * sample.own_ids[list].size());
    for (std::uint8_t& code : pq_codes.back()) code = static_cast<std::uint8_t>(generator());
  }
  for (std::size_t list = 0; list < sample.nlist(); ++list) {
    memory.codes.push_back(reinterpret_cast<const std::uint8_t*>(sample.vectors[list].data()));
    memory.ids.push_back(sample.own_ids[list].data());
    memory.pq_codes.push_back(pq_codes[list].data());
  }
  const Rows rows({d, Codec::kFlat, {}}, std::move(memory));
  const ListScan scan(rows, sample.references, sample.reference_starts);
  const std::vector<float> X = tests::random_unit_rows(nq, d, 6), codewords = tests::random_numbers(256 * d, 7),
                           centroids = tests::random_unit_rows(sample.nlist(), d, 8);
  const std::vector<std::int64_t> lists = some_lists(sample.nlist(), nq, nprobe);
  const std::vector<std::int32_t> labels{0, 1, 2, 3, 0};
  for (const std::size_t kept : {1, 5, 100}) {
    std::vector<float> D(nq * k);
    std::vector<std::int64_t> I(nq * k);
    scan.scan_codes({{X.data(), nq, d}, labels, {lists.data(), nq, nprobe}, {}},
                    {parts, width, codewords.data(), centroids.data()}, kept, {D.data(), nq, k}, {I.data(), nq, k});
    for (std::size_t q = 0; q < nq; ++q) {
      const std::span x = std::span(X).subspan(q * d, d);
      const Found all = sample.search(x, labels[q], std::span(lists).subspan(q * nprobe, nprobe), 100);
      for (std::size_t place = 0; place < k; ++place) {  // a part of them, in order; all if enough are kept
        const std::int64_t id = I[q * k + place];
        if (kept == 100) CHECK(id == all.I[place]);
        if (place >= kept) CHECK(id == -1);
        const auto at = std::find(all.I.begin(), all.I.end(), id);
        CHECK(at != all.I.end() && all.D[static_cast<std::size_t>(at - all.I.begin())] == D[q * k + place]);
      }
    }
  }
}

TEST(list_scan_refuses_what_does_not_fit) {
  const Sample sample(3, {5, 6}, 1);
  const Rows rows = sample.rows();
  const std::vector<std::int32_t> outside{11};
  const std::vector<std::int64_t> one{0, 1}, two{0, 2}, none{0};
  CHECK_THROWS(std::invalid_argument, "must be rows", ListScan(rows, outside, one));
  CHECK_THROWS(std::invalid_argument, "reference_starts", ListScan(rows, outside, two));
  const ListScan scan(rows, {}, none);
  const std::vector<float> X(3, 0.5F);
  const std::vector<std::int32_t> labels{0};
  std::vector<float> D(2);
  std::vector<std::int64_t> I(2), lists{2};
  const auto scanned = [&](std::size_t d, std::size_t k) {
    scan.scan({{X.data(), 1, d}, labels, {lists.data(), 1, 1}, {}}, 0, {D.data(), 1, k}, {I.data(), 1, 2});
    return true;
  };
  CHECK_THROWS(std::invalid_argument, "no such list", scanned(3, 2));
  lists[0] = 1;
  CHECK_THROWS(std::invalid_argument, "d columns", scanned(2, 2));
  CHECK_THROWS(std::invalid_argument, "D and I", scanned(3, 1));
}

TEST(means_of_long_lists_count_all_rows) {
  constexpr std::size_t kRows = (std::size_t{1} << 24) + (std::size_t{1} << 20);  // more than a float32 counts
  std::vector<float> X(kRows, 1.0F);
  std::vector<std::int32_t> labels(kRows, 0);
  for (const std::size_t row : {kRows - 1, kRows - 2}) X[row] = 3, labels[row] = 1;
  const std::int64_t no_ids = 0;  // not read
  const Rows rows({1, Codec::kFlat, {}, Metric::kL2}, {.starts = {0, static_cast<std::int64_t>(kRows)},
                                                       .codes = {reinterpret_cast<const std::uint8_t*>(X.data())},
                                                       .ids = {&no_ids},
                                                       .labels = labels,
                                                       .pq_codes = {}});
  const std::vector<std::int32_t> no_references;
  const std::vector<std::int64_t> zero{0};
  const ListScan lists(rows, no_references, zero);
  const std::vector<std::int64_t> starts{0, 2};
  const std::vector<std::int32_t> classes{0, 1};
  const std::vector<float> center{0};
  std::vector<float> mean(2), others(4);
  lists.centroids({starts, classes, {mean.data(), 1, 2}, {others.data(), 2, 2}, center}, 1, nullptr);
  CHECK(std::fabs(mean[0] - 1) < 1e-6F && std::fabs(mean[1] + 0.5F) < 1e-6F);  // minus half the square of the mean
  CHECK(others[0] == 3 && others[1] == -4.5F);
  CHECK(others[2] == 1 && others[3] == -0.5F);
}

}  // namespace cfe

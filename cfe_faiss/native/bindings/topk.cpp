#include "core/topk.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "bindings/arrays.h"
#include "bindings/bindings.h"

namespace cfe {

namespace {

constexpr std::size_t kAhead = 8;

void check_heaps(const Array2<float>& D, const Array2<std::int64_t>& I) {
  if (D.shape(0) != I.shape(0) || D.shape(1) != I.shape(1)) throw nb::value_error("D and I must have the same shape");
}

void sort_heaps(const Array2<float>& D, const Array2<std::int64_t>& I) {
  check_heaps(D, I);
  const nb::gil_scoped_release released;
  const std::size_t k = D.shape(1);
  for (std::size_t q = 0; k > 0 && q < D.shape(0); ++q) TopK{D.data() + q * k, I.data() + q * k, k}.sort();
}

void push(const Array2<float>& D, const Array2<std::int64_t>& I, const Array2<const float>& scores,
          const Array2<const std::int64_t>& ids, bool deduplicate) {
  check_heaps(D, I);
  check_length("scores", scores.shape(0), D.shape(0));
  check_length("ids", ids.size(), scores.size());
  const nb::gil_scoped_release released;
  const std::size_t k = D.shape(1), width = scores.shape(1);
  for (std::size_t q = 0; k > 0 && q < D.shape(0); ++q) {
    const TopK best{D.data() + q * k, I.data() + q * k, k};
    for (std::size_t place = q * width; place < (q + 1) * width; ++place)
      deduplicate ? best.push_once(scores.data()[place], ids.data()[place])
                  : best.push(scores.data()[place], ids.data()[place]);
  }
}

void write_sorted(const Array2<float>& D, const Array2<std::int64_t>& I, const Array1<const std::int64_t>& order,
                  const Array2<float>& found_D, const Array2<std::int64_t>& found_I) {
  check_heaps(D, I);
  check_heaps(found_D, found_I);
  check_length("order", order.shape(0), D.shape(0));
  check_length("found_D[0]", found_D.shape(1), D.shape(1));
  const nb::gil_scoped_release released;
  const std::size_t k = D.shape(1);
  const std::span<const std::int64_t> rows = as_span(order);
  for (const std::int64_t row : rows)
    if (row < 0 || static_cast<std::size_t>(row) >= found_D.shape(0)) throw std::out_of_range("order must name rows");
  for (std::size_t q = 0; k > 0 && q < rows.size(); ++q) {
    // The places are scattered: some rows ahead they are asked for.
    const auto later = static_cast<std::size_t>(rows[std::min(q + kAhead, rows.size() - 1)]) * k;
    __builtin_prefetch(found_D.data() + later, 1);
    __builtin_prefetch(found_I.data() + later, 1);
    TopK{D.data() + q * k, I.data() + q * k, k}.sort();
    const auto place = static_cast<std::size_t>(rows[q]) * k;
    std::memcpy(found_D.data() + place, D.data() + q * k, k * sizeof(float));
    std::memcpy(found_I.data() + place, I.data() + q * k, k * sizeof(std::int64_t));
  }
}

}  // namespace

void bind_topk(nb::module_& module) {
  module.def("sort_heaps", sort_heaps, as_is("D"), as_is("I"));
  module.def("write_sorted", write_sorted, as_is("D"), as_is("I"), as_is("order"), as_is("found_D"), as_is("found_I"));
  module.def("push", push, as_is("D"), as_is("I"), as_is("scores"), as_is("ids"), nb::arg("deduplicate") = false);
}

}  // namespace cfe

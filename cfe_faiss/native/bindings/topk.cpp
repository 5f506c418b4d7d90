#include "core/topk.h"

#include "bindings/arrays.h"
#include "bindings/bindings.h"

namespace cfe {

namespace {

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

}  // namespace

void bind_topk(nb::module_& module) {
  module.def("sort_heaps", sort_heaps, as_is("D"), as_is("I"));
  module.def("push", push, as_is("D"), as_is("I"), as_is("scores"), as_is("ids"), nb::arg("deduplicate") = false);
}

}  // namespace cfe

#include "core/rows.h"

#include <nanobind/stl/pair.h>

#include "bindings/arrays.h"
#include "bindings/bindings.h"

namespace cfe {

namespace {

using Floats = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>;
using Ints = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>, nb::c_contig>;

void gather(const Rows& rows, const Array1<const std::int64_t>& wanted, const Array2<float>& X,
            const Array1<std::int64_t>& ids) {
  check_length("X", X.shape(0), wanted.shape(0));
  check_length("X[0]", X.shape(1), rows.d());
  check_length("ids", ids.shape(0), wanted.shape(0));
  const nb::gil_scoped_release released;
  rows.gather(as_span(wanted), X.data(), ids.data());
}

void copy_ids(const Rows& rows, const Array1<std::int64_t>& ids) {
  check_length("ids", ids.shape(0), rows.size());
  const nb::gil_scoped_release released;
  rows.copy_ids(as_span(ids));
}

// In a mapped file vectors may lie at odd addresses, which NumPy does not take.
template <class Number>
bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % alignof(Number) == 0;
}

nb::object view(nb::handle self, std::int64_t first, std::int64_t stop) {
  const Rows& rows = nb::cast<const Rows&>(self);
  const bool some = 0 <= first && first < stop && stop <= static_cast<std::int64_t>(rows.size());
  if (!some || rows.codec() != Codec::kFlat) return nb::none();
  const std::size_t list = rows.list_of(first);
  const std::int64_t start = rows.starts()[list];
  const std::uint8_t* codes = rows.row(first);
  const std::int64_t* ids = rows.ids_of(list).data() + (first - start);
  if (stop > rows.starts()[list + 1] || !aligned<float>(codes) || !aligned<std::int64_t>(ids)) return nb::none();
  const auto size = static_cast<std::size_t>(stop - first);
  auto* data = const_cast<float*>(reinterpret_cast<const float*>(codes));
  return nb::make_tuple(Floats(data, {size, rows.d()}, self), Ints(const_cast<std::int64_t*>(ids), {size}, self));
}

}  // namespace

void bind_rows(nb::module_& module) {
  nb::class_<Rows>(module, "Rows")
      .def(
          "__init__",
          [](Rows* rows, std::size_t d, int codec, const Array1<const float>& levels,
             const Array1<const std::int64_t>& starts, const Array1<const std::uint64_t>& code_addresses,
             const Array1<const std::uint64_t>& id_addresses, const Array1<const std::int32_t>& labels,
             const Array1<const std::uint64_t>& pq_code_addresses, std::size_t pq_code_size) {
            new (rows) Rows(d, static_cast<Codec>(codec), as_span(levels), as_span(starts), as_span(code_addresses),
                            as_span(id_addresses), as_span(labels), as_span(pq_code_addresses), pq_code_size);
          },
          nb::arg("d"), nb::arg("codec"), as_is("levels"), as_is("starts"), as_is("code_addresses"),
          as_is("id_addresses"), as_is("labels"), as_is("pq_code_addresses"), nb::arg("pq_code_size"))
      .def("__len__", &Rows::size)
      .def("gather", gather, as_is("rows"), as_is("X"), as_is("ids"))
      .def("copy_ids", copy_ids, as_is("ids"))
      .def("view", view, nb::arg("first"), nb::arg("stop"));
}

}  // namespace cfe

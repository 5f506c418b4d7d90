#include "core/rows.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

namespace cfe {

namespace {

template <class Number>
using Numbers = nb::ndarray<nb::numpy, const Number, nb::ndim<1>, nb::c_contig>;

// A view of numbers of the rows.
template <auto numbers_of>
auto numbers(nb::handle self) {
  const auto values = (nb::cast<const Rows&>(self).*numbers_of)();
  return Numbers<typename decltype(values)::value_type>(values.data(), {values.size()}, self);
}

void gather(const Rows& rows, Ints wanted, Matrix<float> X, std::span<std::int64_t> ids) {
  check_shape("X", X, wanted.size(), rows.d());
  check_length("ids", ids.size(), wanted.size());
  rows.gather(wanted, X.data, ids.data());
}

void copy_ids(const Rows& rows, std::span<std::int64_t> ids) {
  check_length("ids", ids.size(), rows.size());
  rows.copy_ids(ids);
}

void check_lists(const Rows& rows, Ints lists) {
  if (lists.data() != nullptr) return rows.check_lists(lists);
  for (std::size_t list = 0; list < rows.nlist(); ++list) rows.check_list(list);
}

auto checksums(const Rows& rows) {
  return as_array(within<nb::gil_scoped_release>([&] { return rows.checksums(); }));
}

// In a mapped file vectors may have odd addresses, which NumPy does not accept.
template <class Number>
bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % alignof(Number) == 0;
}

nb::object view(nb::handle self, std::int64_t first, std::int64_t stop) {
  const Rows& rows = nb::cast<const Rows&>(self);
  const bool some = 0 <= first && first < stop && stop <= static_cast<std::int64_t>(rows.size());
  if (!some || rows.codec() != Codec::kFlat) return nb::none();
  const std::size_t list = rows.list_of(first);
  rows.check_list(list);
  const auto place = static_cast<std::size_t>(first - rows.starts()[list]);
  const std::uint8_t* codes = rows.codes_of(list) + rows.row_size() * place;
  const std::int64_t* ids = rows.ids_of(list).data() + place;
  if (stop > rows.starts()[list + 1] || !aligned<float>(codes) || !aligned<std::int64_t>(ids)) return nb::none();
  const auto size = static_cast<std::size_t>(stop - first);
  const auto* data = reinterpret_cast<const float*>(codes);
  return nb::make_tuple(nb::ndarray<nb::numpy, const float, nb::ndim<2>, nb::c_contig>(data, {size, rows.d()}, self),
                        Numbers<std::int64_t>(ids, {size}, self));
}

}  // namespace

void bind_rows(nb::module_& module) {
  nb::class_<ListChecks>(module, "ListChecks")
      .def(nb::init<std::string, std::span<const std::uint32_t>>(), "source"_a, "sums"_a);
  nb::class_<Rows>(module, "Rows")
      .def("__len__", &Rows::size)
      .def_prop_ro("metric", [](const Rows& rows) { return static_cast<int>(rows.metric()); })
      .def("labels", numbers<&Rows::labels>)
      .def("starts", numbers<&Rows::starts>)
      .def("gather", gather, "rows"_a, "X"_a, "ids"_a, without_gil)
      .def("copy_ids", copy_ids, "ids"_a, without_gil)
      .def("check_by", &Rows::check_by, "parts"_a, "owners"_a, without_gil)
      .def("check_lists", check_lists, "lists"_a = nb::none(), without_gil)
      .def("check_ids", &Rows::check_ids, without_gil)
      .def("checksums", checksums)
      .def("view", view, "first"_a, "stop"_a);
}

}  // namespace cfe

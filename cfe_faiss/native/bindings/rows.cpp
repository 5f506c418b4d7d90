#include "core/rows.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

namespace cfe {

namespace {

template <class Number>
using Numbers = nb::ndarray<nb::numpy, const Number, nb::ndim<1>, nb::c_contig>;

template <class Number>
using Arrays = std::vector<nb::ndarray<const Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>>;

template <class Number>
std::vector<std::uint64_t> addresses_of(const Arrays<Number>& arrays) {
  std::vector<std::uint64_t> addresses;
  for (const auto& array : arrays) addresses.push_back(reinterpret_cast<std::uint64_t>(array.data()));
  return addresses;
}

void check_codes(const Arrays<std::uint8_t>& codes, const Arrays<std::int64_t>& ids, std::size_t size) {
  check_length("codes", codes.size(), ids.size());
  for (std::size_t list = 0; list < codes.size(); ++list)
    check_length("the codes of a list", codes[list].size(), ids[list].size() * size);
}

// Rows in arrays that the caller keeps alive.
void make(Rows* place, std::size_t d, int codec, const Floats& levels, const Arrays<std::uint8_t>& codes,
          const Arrays<std::int64_t>& ids, const Array1<const std::int32_t>& labels,
          const Arrays<std::uint8_t>& pq_codes, std::size_t pq_code_size) {
  std::vector<std::int64_t> starts{0};
  for (const auto& list : ids) starts.push_back(starts.back() + static_cast<std::int64_t>(list.size()));
  const auto code_addresses = addresses_of(codes), id_addresses = addresses_of(ids),
             pq_addresses = addresses_of(pq_codes);
  const nb::gil_scoped_release released;
  const Rows rows(d, static_cast<Codec>(codec), as_span(levels), starts, code_addresses, id_addresses, as_span(labels),
                  pq_addresses, pq_code_size);
  check_codes(codes, ids, rows.row_size());
  if (pq_code_size > 0) check_codes(pq_codes, ids, pq_code_size);
  new (place) Rows(rows);
}

Numbers<std::int32_t> labels(nb::handle self) {
  const Rows& rows = nb::cast<const Rows&>(self);
  std::span<const std::int32_t> own;
  {
    const nb::gil_scoped_release released;
    own = rows.labels();
  }
  return {own.data(), {own.size()}, self};
}

Numbers<std::int64_t> starts(nb::handle self) {
  const auto own = nb::cast<const Rows&>(self).starts();
  return {own.data(), {own.size()}, self};
}

void gather(const Rows& rows, const Ints& wanted, const Array2<float>& X, const Array1<std::int64_t>& ids) {
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

void check_lists(const Rows& rows, const std::optional<Ints>& lists) {
  const nb::gil_scoped_release released;
  if (lists) return rows.check_lists(as_span(*lists));
  for (std::size_t list = 0; list < rows.nlist(); ++list) rows.check_list(list);
}

nb::ndarray<nb::numpy, std::uint32_t, nb::ndim<1>> checksums(const Rows& rows) {
  std::vector<std::uint32_t> sums;
  {
    const nb::gil_scoped_release released;
    sums = rows.checksums();
  }
  return as_array(std::move(sums));
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
  const std::int64_t start = rows.starts()[list];
  const std::uint8_t* codes = rows.row(first);
  const std::int64_t* ids = rows.ids_of(list).data() + (first - start);
  if (stop > rows.starts()[list + 1] || !aligned<float>(codes) || !aligned<std::int64_t>(ids)) return nb::none();
  const auto size = static_cast<std::size_t>(stop - first);
  const auto* data = reinterpret_cast<const float*>(codes);
  return nb::make_tuple(nb::ndarray<nb::numpy, const float, nb::ndim<2>, nb::c_contig>(data, {size, rows.d()}, self),
                        Numbers<std::int64_t>(ids, {size}, self));
}

}  // namespace

void bind_rows(nb::module_& module) {
  nb::class_<ListChecks>(module, "ListChecks")
      .def(
          "__init__",
          [](ListChecks* place, std::string source, const Array1<const std::uint32_t>& sums) {
            new (place) ListChecks(std::move(source), as_span(sums));
          },
          nb::arg("source"), as_is("sums"));
  nb::class_<Rows>(module, "Rows")
      .def("__init__", make, nb::arg("d"), nb::arg("codec"), as_is("levels"), nb::arg("codes"), nb::arg("ids"),
           as_is("labels"), nb::arg("pq_codes"), nb::arg("pq_code_size"), nb::keep_alive<1, 5>(),
           nb::keep_alive<1, 6>(), nb::keep_alive<1, 8>())
      .def("__len__", &Rows::size)
      .def("labels", labels)
      .def("starts", starts)
      .def("gather", gather, as_is("rows"), as_is("X"), as_is("ids"))
      .def("copy_ids", copy_ids, as_is("ids"))
      .def(
          "check_by",
          [](Rows& rows, std::vector<std::shared_ptr<ListChecks>> parts, const Ints& owners) {
            rows.check_by({parts.begin(), parts.end()}, as_span(owners));
          },
          nb::arg("parts"), as_is("owners"))
      .def("check_lists", check_lists, nb::arg("lists").noconvert().none() = nb::none())
      .def("check_ids", &Rows::check_ids, nb::call_guard<nb::gil_scoped_release>())
      .def("checksums", checksums)
      .def("view", view, nb::arg("first"), nb::arg("stop"));
}

}  // namespace cfe

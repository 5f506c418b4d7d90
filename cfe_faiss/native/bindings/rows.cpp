#include "core/rows.h"

#include "bindings/arrays.h"
#include "bindings/bindings.h"

namespace cfe {

void bind_rows(nb::module_& module) {
  nb::class_<Rows>(module, "Rows")
      .def(
          "__init__",
          [](Rows* rows, std::size_t d, int codec, const Array1<const float>& levels,
             const Array1<const std::int64_t>& starts, const Array1<const std::uint64_t>& code_addresses,
             const Array1<const std::uint64_t>& id_addresses, const Array1<const std::int32_t>& labels) {
            new (rows) Rows(d, static_cast<Codec>(codec), as_span(levels), as_span(starts), as_span(code_addresses),
                            as_span(id_addresses), as_span(labels));
          },
          nb::arg("d"), nb::arg("codec"), as_is("levels"), as_is("starts"), as_is("code_addresses"),
          as_is("id_addresses"), as_is("labels"))
      .def("__len__", &Rows::size);
}

}  // namespace cfe

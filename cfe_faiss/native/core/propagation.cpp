#include "core/propagation.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

constexpr std::size_t kValuesPerTask = 1 << 20;

std::vector<Range> row_ranges(std::size_t rows, std::size_t columns) {
  const std::size_t step = std::max<std::size_t>(kValuesPerTask / columns, 1);
  std::vector<Range> ranges;
  for (std::size_t first = 0; first < rows; first += step) ranges.push_back({first, std::min(first + step, rows)});
  return ranges;
}

// Tells `watch` about a part of its work: `size` of it, after `before`, done when all tasks are.
Watch part_of(const Watch& watch, double before, double size, std::size_t tasks) {
  if (!watch) return {};
  return [&watch, before, size, tasks](std::size_t done) {
    watch(static_cast<std::size_t>(before + size * static_cast<double>(done) / static_cast<double>(tasks)));
  };
}

void copy_rows(const Matrix<const float>& from, std::span<float> to, int threads, const Watch& watch) {
  const std::vector<Range> ranges = row_ranges(from.rows, from.columns);
  const auto copy = [&](std::size_t task) {
    const Matrix<const float> rows = from.part(ranges[task].first, ranges[task].stop);
    std::copy_n(rows.data, rows.size(), to.begin() + ranges[task].first * from.columns);
  };
  parallel_for(ranges.size(), threads, copy, watch);
}

}  // namespace

SumsOfNodes::SumsOfNodes(std::size_t nodes, std::size_t d)
    : width_(padded(d)), groups_(nodes * width_), totals_(nodes * width_) {}

BlockStep::BlockStep(const Nodes& nodes, std::size_t d)
    : nodes_(nodes), d_(d), own_(nodes.range.size() * d), sums_(nodes.range.size(), d) {
  for (std::size_t i = 0; i < nodes.range.size(); ++i) read_.push_back(static_cast<std::size_t>(nodes.indptr[i]));
}

void BlockStep::gather(const UnitRows& others, int threads, const Watch& watch) {
  require(others.low == next_, "blocks must come in the order of their rows");
  require(others.rows.columns == d_, "all rows must have the same length");
  next_ += others.rows.rows;
  const std::vector<Range> ranges = balanced_ranges(nodes_.indptr);
  const auto high = static_cast<std::int64_t>(next_);
  const auto add = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v) {
      const auto begin = nodes_.indices.begin();
      const auto end = std::lower_bound(begin + read_[v], begin + nodes_.indptr[v + 1], high);
      const auto stop = static_cast<std::size_t>(end - begin);
      const Neighbors neighbors{.nodes = nodes_.indices,
                                .first = read_[v],
                                .stop = stop,
                                .done = read_[v] - static_cast<std::size_t>(nodes_.indptr[v]),
                                .weights = nodes_.weights,
                                .largest = nodes_.weights.empty() ? 1.0f : nodes_.largest[v]};
      kernels().gather(others, neighbors, std::span(own_).subspan(v * d_, d_), sums_[v]);
      read_[v] = stop;
    }
  };
  parallel_for(ranges.size(), threads, add, watch);
}

void BlockStep::finish(double alpha, const NewRows& rows, int threads, const Watch& watch) {
  const std::vector<Range> ranges = row_ranges(nodes_.range.size(), d_);
  const auto finish_rows = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v) {
      require(read_[v] == static_cast<std::size_t>(nodes_.indptr[v + 1]),
              "the rows of all nodes must have come before");
      const auto degree = static_cast<double>(nodes_.indptr[v + 1] - nodes_.indptr[v]);
      const Shares shares = shares_of(alpha, rows.lengths[v], nodes_.weights.empty() ? degree : nodes_.totals[v]);
      rows.new_lengths[v] = kernels().finish(std::span(own_).subspan(v * d_, d_), shares, sums_[v],
                                             {rows.aggregate[v], rows.new_unit[v]});
    }
  };
  parallel_for(ranges.size(), threads, finish_rows, watch);
}

void Propagation::check(const Step& step) const {
  const std::size_t n = graph_.num_nodes(), d = step.unit.columns;
  require(d > 0, "unit must have at least one column");
  require(step.unit.rows == n && step.lengths.size() == n && step.new_lengths.size() == n,
          "unit and both lengths must have a row for each node");
  require(step.aggregate.rows == n && step.aggregate.columns == d, "aggregate must have the shape of unit");
  require(step.new_unit.rows == n && step.new_unit.columns == d, "new_unit must have the shape of unit");
  require(n == 0 || step.new_unit.data != step.unit.data, "new_unit must not be unit");
}

void Propagation::step(const Step& step, const Watch& watch) const {
  check(step);
  if (memory_ == 0)
    step_in_memory(step, watch);
  else
    step_by_blocks(step, watch);
}

void Propagation::step_in_memory(const Step& step, const Watch& watch) const {
  const std::vector<Range> ranges = balanced_ranges(graph_.indptr());
  const auto take = [&](std::size_t task) {
    SumsOfNodes sums(1, step.unit.columns);
    const Nodes nodes{ranges[task],     graph_.indptr(),  graph_.indices(),
                      graph_.weights(), graph_.largest(), graph_.totals()};
    kernels().step(nodes, alpha_, step, sums[0]);
  };
  const auto edges = static_cast<double>(graph_.num_edges());
  parallel_for(ranges.size(), threads_, take, part_of(watch, 0.0, edges, ranges.size()));
}

void Propagation::step_by_blocks(const Step& step, const Watch& watch) const {
  const std::size_t n = step.unit.rows, d = step.unit.columns;
  if (n == 0) return;
  // Of a node its row, two sums (one in float64) and its neighbours: three quarters of the memory are for these.
  const std::size_t of_neighbors = 4 * (graph_.num_edges() + graph_.weights().size()) / n;
  const std::size_t of_node = 16 * d + of_neighbors + 32;
  const std::size_t height = std::clamp<std::size_t>(memory_ / 4 * 3 / of_node, 1, n);
  const std::size_t width = std::clamp<std::size_t>(memory_ / 4 / (4 * d), 1, n);
  std::vector<float> others(width * d);
  for (std::size_t first = 0; first < n; first += height) {
    const std::size_t stop = std::min(first + height, n), count = stop - first;
    const auto before = static_cast<double>(graph_.indptr()[first]);
    const double share = (static_cast<double>(graph_.indptr()[stop]) - before) / static_cast<double>(n);
    const Watch quiet = part_of(watch, before, 0.0, 1);
    BlockStep block(nodes_of(first, count), d);
    copy_rows(step.unit.part(first, stop), block.own(), threads_, quiet);
    for (std::size_t low = 0; low < n; low += width) {
      const std::size_t high = std::min(low + width, n);
      copy_rows(step.unit.part(low, high), others, threads_, quiet);
      block.gather({{others.data(), high - low, d}, low, step.lengths}, threads_,
                   part_of(watch, before + share * static_cast<double>(low), 0.0, 1));
    }
    block.finish(alpha_,
                 {step.lengths.subspan(first, count), step.aggregate.part(first, stop), step.new_unit.part(first, stop),
                  step.new_lengths.subspan(first, count)},
                 threads_, quiet);
  }
}

Nodes Propagation::nodes_of(std::size_t first, std::size_t count) const {
  const bool weighted = !graph_.weights().empty();
  return {{0, count},
          graph_.indptr().subspan(first, count + 1),
          graph_.indices(),
          graph_.weights(),
          weighted ? graph_.largest().subspan(first, count) : graph_.largest(),
          weighted ? graph_.totals().subspan(first, count) : graph_.totals()};
}

void normalise_rows(const Matrix<float>& rows, std::span<double> norms, int threads, const Watch& watch) {
  require(norms.size() == rows.rows, "norms must have a number for each row");
  if (rows.columns == 0) return;
  const std::vector<Range> ranges = row_ranges(rows.rows, rows.columns);
  const auto normalise = [&](std::size_t task) {
    for (std::size_t r = ranges[task].first; r < ranges[task].stop; ++r) norms[r] = kernels().normalise(rows[r]);
  };
  parallel_for(ranges.size(), threads, normalise, watch);
}

}  // namespace cfe

#include "core/propagation.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/kernels.h"

namespace cfe {

namespace {

constexpr std::size_t kValuesPerTask = 1 << 20;
constexpr std::size_t kLanes = 16;

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

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

// The sums of some nodes.
class SumsOfNodes {
 public:
  SumsOfNodes(std::size_t nodes, std::size_t d)
      : width_((d + kLanes - 1) / kLanes * kLanes), groups_(nodes * width_), totals_(nodes * width_) {}

  Sums operator[](std::size_t node) {
    return {std::span(groups_).subspan(node * width_, width_), std::span(totals_).subspan(node * width_, width_)};
  }
  void clear(std::size_t node) {
    const Sums sums = (*this)[node];
    std::fill(sums.group.begin(), sums.group.end(), 0.0f);
    std::fill(sums.total.begin(), sums.total.end(), 0.0);
  }

 private:
  std::size_t width_;
  std::vector<float> groups_;
  std::vector<double> totals_;
};

// What stays in memory of a step by blocks: own rows, sums and how far the neighbours have been read, of some nodes;
// the rows of some others.
struct Blocks {
  std::vector<float> own, others;
  std::vector<std::size_t> read;  // places in the graph's indices
  SumsOfNodes sums;

  Blocks(std::size_t height, std::size_t width, std::size_t d)
      : own(height * d), others(width * d), read(height), sums(height, d) {}
};

void copy_rows(const Matrix<const float>& from, std::span<float> to, int threads, const Watch& watch) {
  const std::vector<Range> ranges = row_ranges(from.rows, from.columns);
  const auto copy = [&](std::size_t task) {
    const Matrix<const float> rows = from.part(ranges[task].first, ranges[task].stop);
    std::copy_n(rows.data, rows.size(), to.begin() + ranges[task].first * from.columns);
  };
  parallel_for(ranges.size(), threads, copy, watch);
}

// Adds the neighbours of nodes first.. that lie in a block of others to the sums of these.
void gather_block(const CsrGraph& graph, std::size_t first, std::size_t count, const UnitRows& others, Blocks& blocks,
                  int threads, const Watch& watch) {
  const std::span<const std::int64_t> indptr = graph.indptr().subspan(first, count + 1);
  const std::vector<Range> ranges = balanced_ranges(indptr);
  const auto high = static_cast<std::int64_t>(others.low + others.rows.rows);
  const std::size_t d = others.rows.columns;
  const auto gather = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v) {
      const auto begin = graph.indices().begin();
      const auto end = std::lower_bound(begin + blocks.read[v], begin + indptr[v + 1], high);
      const auto stop = static_cast<std::size_t>(end - begin);
      const Neighbors neighbors{.nodes = graph.indices(),
                                .first = blocks.read[v],
                                .stop = stop,
                                .done = blocks.read[v] - indptr[v],
                                .weights = graph.weights(),
                                .largest = graph.weights().empty() ? 1.0f : graph.largest()[first + v]};
      kernels().gather(others, neighbors, std::span(blocks.own).subspan(v * d, d), blocks.sums[v]);
      blocks.read[v] = stop;
    }
  };
  parallel_for(ranges.size(), threads, gather, watch);
}

}  // namespace

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
  Blocks blocks(height, width, d);

  for (std::size_t first = 0; first < n; first += height) {
    const std::size_t stop = std::min(first + height, n);
    const auto before = static_cast<double>(graph_.indptr()[first]);
    const double share = (static_cast<double>(graph_.indptr()[stop]) - before) / static_cast<double>(n);
    const Watch quiet = part_of(watch, before, 0.0, 1);
    copy_rows(step.unit.part(first, stop), blocks.own, threads_, quiet);
    for (std::size_t v = first; v < stop; ++v) {
      blocks.sums.clear(v - first);
      blocks.read[v - first] = static_cast<std::size_t>(graph_.indptr()[v]);
    }
    for (std::size_t low = 0; low < n; low += width) {
      const std::size_t high = std::min(low + width, n);
      copy_rows(step.unit.part(low, high), blocks.others, threads_, quiet);
      const UnitRows others{{blocks.others.data(), high - low, d}, low, step.lengths};
      const Watch part = part_of(watch, before + share * static_cast<double>(low), 0.0, 1);
      gather_block(graph_, first, stop - first, others, blocks, threads_, part);
    }
    const std::vector<Range> ranges = row_ranges(stop - first, d);
    const auto finish_rows = [&](std::size_t task) {
      for (std::size_t i = ranges[task].first; i < ranges[task].stop; ++i) {
        const std::size_t v = first + i;
        const auto degree = static_cast<double>(graph_.neighbors(v).size());
        const double total = graph_.weights().empty() ? degree : graph_.totals()[v];
        const Shares shares = shares_of(alpha_, step.lengths[v], total);
        step.new_lengths[v] = kernels().finish(std::span(blocks.own).subspan(i * d, d), shares, blocks.sums[i],
                                               {step.aggregate[v], step.new_unit[v]});
      }
    };
    parallel_for(ranges.size(), threads_, finish_rows, quiet);
  }
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

"""PyG's ``NodeLoader`` over a sampler that takes all neighbours, which needs neither pyg-lib nor torch-sparse."""

import torch
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput


class AllNeighbors(BaseSampler):
    """What ``NeighborSampler`` gives for ``num_neighbors=[-1] * hops``: nodes in the order they are reached."""

    def __init__(self, data, hops):
        self.hops = hops
        self.edge_index, self.num_nodes = data.edge_index, data.num_nodes

    def sample_from_edges(self, index, **kwargs):
        raise NotImplementedError

    def sample_from_nodes(self, index, **kwargs):
        places = torch.full((self.num_nodes,), -1)
        nodes = index.node
        places[nodes] = torch.arange(len(nodes))
        edges, front = [], nodes
        for _ in range(self.hops):
            found = torch.isin(self.edge_index[1], front).nonzero().view(-1)
            sources = self.edge_index[0, found].unique()
            front = sources[places[sources] < 0]
            places[front] = torch.arange(len(nodes), len(nodes) + len(front))
            nodes = torch.cat([nodes, front])
            edges.append(found)
        edge = torch.cat([torch.empty(0, dtype=torch.long), *edges])
        row, col = places[self.edge_index[:, edge]]
        return SamplerOutput(nodes, row, col, edge, metadata=(index.input_id, index.time))


class AllTypedNeighbors(BaseSampler):
    """The same for ``HeteroData``."""

    def __init__(self, data, hops):
        self.data, self.hops = data, hops

    def sample_from_edges(self, index, **kwargs):
        raise NotImplementedError

    def sample_from_nodes(self, index, **kwargs):
        nodes = {kind: torch.empty(0, dtype=torch.long) for kind in self.data.node_types}
        nodes[index.input_type] = index.node
        front = dict(nodes)
        edges = {kind: [] for kind in self.data.edge_types}
        for _ in range(self.hops):
            reached = {kind: [] for kind in nodes}
            for kind in self.data.edge_types:
                edge_index = self.data[kind].edge_index
                found = torch.isin(edge_index[1], front[kind[2]]).nonzero().view(-1)
                edges[kind].append(found)
                reached[kind[0]].append(edge_index[0, found])
            for kind, sources in reached.items():
                unique = torch.cat([*sources, nodes[kind][:0]]).unique()
                front[kind] = unique[~torch.isin(unique, nodes[kind])]
                nodes[kind] = torch.cat([nodes[kind], front[kind]])
        places = {}
        for kind, ids in nodes.items():
            places[kind] = torch.full((self.data[kind].num_nodes,), -1)
            places[kind][ids] = torch.arange(len(ids))
        edge = {kind: torch.cat([nodes[kind[0]][:0], *found]) for kind, found in edges.items()}
        row = {
            kind: places[kind[0]][self.data[kind].edge_index[0, ids]] for kind, ids in edge.items()
        }
        col = {
            kind: places[kind[2]][self.data[kind].edge_index[1, ids]] for kind, ids in edge.items()
        }
        return HeteroSamplerOutput(nodes, row, col, edge, metadata=(index.input_id, index.time))


def all_neighbors(data, hops, **options):
    """Return a loader of batches with all neighbours; ``options`` as of ``NodeLoader``."""
    sampler = AllTypedNeighbors if hasattr(data, "node_types") else AllNeighbors
    return NodeLoader(data, sampler(data, hops), **options)

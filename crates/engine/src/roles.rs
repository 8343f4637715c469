//! The roles of nodes: clients and servers.

use crate::machine::NodeId;

/// Roles say which nodes are clients and which are servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    /// The number of nodes.
    pub nodes: usize,
    /// The node of each client, by rank.
    pub clients: Vec<NodeId>,
    /// The node of each server, by number. A node may hold several servers.
    pub servers: Vec<NodeId>,
    ranks: Vec<Option<usize>>,
    servers_by_node: Vec<(NodeId, usize)>,
    /// The node of rank 0, and then the other nodes that have a server, ascending.
    serving: Vec<NodeId>,
}

impl Roles {
    /// Makes roles in which rank `r` is the client on `clients[r]`, and server `s` is on
    /// `servers[s]`.
    ///
    /// # Panics
    /// When a node is not one of the machine's, or has two clients.
    pub fn new(nodes: usize, clients: Vec<NodeId>, servers: Vec<NodeId>) -> Self {
        let mut ranks = vec![None; nodes];
        for (rank, &node) in clients.iter().enumerate() {
            assert_eq!(ranks[node], None, "node {node} has two clients");
            ranks[node] = Some(rank);
        }
        let numbered = servers.iter().enumerate().map(|(server, &node)| {
            assert!(node < nodes, "server {server} is on node {node} of {nodes}");
            (node, server)
        });
        let mut servers_by_node: Vec<_> = numbered.collect();
        servers_by_node.sort_unstable();
        let root = clients.first().copied();
        let mut serving: Vec<_> = servers_by_node.iter().map(|&(node, _)| node).collect();
        serving.dedup();
        serving.retain(|&node| Some(node) != root);
        serving.splice(0..0, root);
        Self {
            nodes,
            clients,
            servers,
            ranks,
            servers_by_node,
            serving,
        }
    }

    /// The rank of the client on `node`, if `node` has one.
    pub fn rank(&self, node: NodeId) -> Option<usize> {
        self.ranks[node]
    }

    /// The node of rank 0, and then the other nodes that have a server, ascending.
    pub fn serving(&self) -> &[NodeId] {
        &self.serving
    }

    /// The place of `node` in [`Roles::serving`], if any.
    pub fn place_serving(&self, node: NodeId) -> Option<usize> {
        let (root, others) = self.serving.split_first()?;
        match node == *root {
            true => Some(0),
            false => others.binary_search(&node).ok().map(|place| place + 1),
        }
    }

    /// The numbers of the servers on `node`, ascending.
    pub fn servers_on(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        let first = self.servers_by_node.partition_point(|&(at, _)| at < node);
        let here = self.servers_by_node[first..].iter();
        here.take_while(move |(at, _)| *at == node)
            .map(|&(_, server)| server)
    }
}

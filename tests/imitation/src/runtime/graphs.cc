// Graphs: what a capture wrote down, replayed as one piece of work. Nodes run in the order of their
// capture, which is one that their dependencies allow.
#include "runtime.h"

#include <algorithm>

using namespace card;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                          unsigned long long) {
  ENTER(current_device);
  *out = new CUgraphExec_st{*graph, current_device};
  trace("INSTANTIATE %zu nodes", graph->nodes.size());
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const int device = resolve(stream)->device;
  ENTER(device);
  if (exec->device != device) {
    complain("a graph is launched on a stream of another device");
    return fail(cudaErrorInvalidValue);
  }
  auto nodes = exec->graph.nodes;  // the graph may be destroyed before it runs
  trace("REPLAY %zu nodes", nodes.size());
  uint64_t launches = 0;
  for (auto& node : nodes) {
    count_replayed(node->kind, node->name);
    launches += node->kind == Kind::Launch;
  }
  if (auto code = count_launches(device, launches)) return fail(code);
  return enqueue(stream, Kind::Other, "[graph]", [nodes] {
    for (auto& node : nodes) {
      if (node->run) node->run();
    }
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const size_t all = graph->nodes.size();
  for (size_t i = 0; nodes && i < std::min(all, *count); ++i) nodes[i] = graph->nodes[i].get();
  *count = all;
  return cudaSuccess;
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*,
                                         size_t* count) {
  *count = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) { return cudaSuccess; }

}  // extern "C"
#pragma GCC visibility pop

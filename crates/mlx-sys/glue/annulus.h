// What Annulus needs of MLX and mlx-c does not offer.
#pragma once

#include "mlx/c/array.h"

#ifdef __cplusplus
extern "C" {
#endif

// Makes an array over memory that somebody else owns, without a copy. Only for the CPU backend, whose buffers are plain
// memory. At least eight readable bytes must lie in front of `data`: MLX keeps a buffer's size there and may look at it.
// `release(owner)` is called once, when the last array over the memory is gone, or at once when this fails.
// The memory must stay as it is until then. Returns 0, or 1 after calling mlx-c's error handler.
int annulus_array_over_memory(
    mlx_array* res,
    const void* data,
    const int* shape,
    int dim,
    mlx_dtype dtype,
    void* owner,
    void (*release)(void* owner));

// The number of nodes that evaluating the array would run: how many arrays are reachable from it and not yet evaluated.
int annulus_graph_size(size_t* res, mlx_array arr);

#ifdef __cplusplus
}
#endif

/* A sum tree: node i has the children 2i and 2i + 1, leaves are the last half. Weights are changed, and found by their
   running sum, in as many steps as their number has bits. */

#include <stdint.h>

/* Of a leaf that is named twice the last counts. */
void mill_tree_put(double *nodes, long width, long count, const int64_t *leaves, const double *weights)
{
    for (long i = 0; i < count; i++)
        nodes[width + leaves[i]] = weights[i];
    for (long i = 0; i < count; i++)
        for (long at = (width + leaves[i]) / 2; at; at /= 2)
            nodes[at] = nodes[2 * at] + nodes[2 * at + 1];
}

/* One weight for the leaves from `start` to before `end`. */
void mill_tree_fill(double *nodes, long width, long start, long end, double weight)
{
    long low = width + start, high = width + end - 1;
    for (long at = low; at <= high; at++)
        nodes[at] = weight;
    for (low /= 2, high /= 2; low; low /= 2, high /= 2)
        for (long at = low; at <= high; at++)
            nodes[at] = nodes[2 * at] + nodes[2 * at + 1];
}

/* For places on the running sum, which are used up, the leaves that they fall into and the weights of those. All go down
   together: what one waits for from memory, the others fetch meanwhile. */
void mill_tree_find(const double *nodes, long width, long count, double *spots, int64_t *leaves, double *weights)
{
    for (long i = 0; i < count; i++)
        leaves[i] = 1;
    for (long level = width; level > 1; level /= 2)
        for (long i = 0; i < count; i++) {
            const double *pair = nodes + 2 * leaves[i];
            /* what rounding leaves over must not fall into an empty half */
            int beyond = (spots[i] >= pair[0]) & (pair[1] > 0);
            spots[i] -= beyond * pair[0]; /* not a branch: it would be guessed wrong half of the time */
            leaves[i] = 2 * leaves[i] + beyond;
        }
    for (long i = 0; i < count; i++) {
        weights[i] = nodes[leaves[i]];
        leaves[i] -= width;
    }
}

/* A small perceptron: the whole way forward and the whole way back, to the weights or to the inputs, one call each.

   Rows are taken in blocks, and a block goes through all layers while it is in the nearest caches.

   The flat weights are, for each layer, [towers, in, out] and biases [towers, out]; then, for the policy and for the value,
   [top, outputs] and biases [outputs], top being the width of the last layer. The value is counted as one output more, the
   last. One tower gives all outputs; of two the first gives the policy, the second the value. */

#include "tiles.h"

enum { BLOCK = 64 }; /* rows: with 64 columns they fill half of 32 KB */

struct net { /* built in compiled.py */
    long towers, outputs, relu, layers;
    long widths[]; /* of the inputs, then of each layer */
};

/* One call, and where things stand in its work area; rows are rounded up to whole panels. */
struct pass {
    const struct net *net;
    const float *x;        /* [rows, in] */
    long rows, top, block; /* block: how many numbers of the tape are of one block of rows */
    float *layers;         /* each layer [towers, in + 1, out], the bias last: weights, or on the way back gradients */
    float *grown;          /* [outputs + 1, top] gradients of their weights */
    float *turned;         /* each layer [towers, out, in] weights; the first only on the way back to the inputs */
    float *heads;          /* [outputs + 1, top] weights */
    float *delta, *below;  /* [BLOCK, width] gradients at a layer, and at the one below it */
    float *gathered;       /* [BLOCK, width] what a layer gave, of some rows alone */
    float *outs, *sums;    /* [outputs + 1, BLOCK] gradients at the outputs, and [outputs + 1, LANES] their sums */
    float *tape;           /* each block [towers, layers, BLOCK, width] what the layers gave */
};

static struct pass lay_out(const struct net *net, long rows, const float *x, float *work)
{
    const long *width = net->widths, outputs = net->outputs + 1;
    long layers = 0, turned = 0, block = 0, widest = 0;
    for (long l = 0; l < net->layers; l++) {
        long in = width[l], out = width[l + 1];
        layers += net->towers * (in + 1) * wide(out);
        turned += net->towers * out * wide(in);
        block += net->towers * BLOCK * wide(out);
        widest = wide(out) > widest ? wide(out) : widest;
        widest = wide(in) > widest ? wide(in) : widest;
    }
    struct pass p = {.net = net, .x = x, .rows = rows, .top = width[net->layers], .block = block};
    p.layers = (float *)(((uintptr_t)work + 63) / 64 * 64);
    p.grown = p.layers + layers;
    p.turned = p.grown + outputs * wide(p.top);
    p.heads = p.turned + turned;
    p.delta = p.heads + outputs * wide(p.top);
    p.below = p.delta + BLOCK * widest;
    p.gathered = p.below + BLOCK * widest;
    p.outs = p.gathered + BLOCK * widest;
    p.sums = p.outs + outputs * BLOCK;
    p.tape = p.sums + outputs * LANES;
    return p;
}

static void turn_heads(struct pass p, const float *weights)
{
    turn(weights, p.top, p.net->outputs, p.heads);
    turn(weights + (p.top + 1) * p.net->outputs, p.top, 1, p.heads + p.net->outputs * wide(p.top));
}

/* All weights for the way back, those of layers from this one on. */
static void turn_layers(struct pass p, const float *weights, long from)
{
    float *to = p.turned;
    for (long l = 0; l < p.net->layers; l++) {
        long in = p.net->widths[l], out = p.net->widths[l + 1];
        for (long t = 0; t < p.net->towers; t++, to += out * wide(in))
            if (l >= from)
                turn(weights + t * in * out, in, out, to);
        weights += p.net->towers * (in + 1) * out;
    }
    turn_heads(p, weights);
}

static void forward_block(struct pass p, long first, const float *head_weights, float *policy, float *value)
{
    const struct net *net = p.net;
    const long *width = net->widths, rows = p.rows - first < BLOCK ? p.rows - first : BLOCK;
    const float *policy_bias = head_weights + p.top * net->outputs, *value_bias = policy_bias + net->outputs + p.top;
    float *out = p.tape + first / BLOCK * p.block;
    for (long t = 0; t < net->towers; t++) {
        const float *below = p.x + first * width[0], *weights = p.layers;
        for (long l = 0; l < net->layers; l++) {
            long size = (width[l] + 1) * wide(width[l + 1]);
            bend((struct product){.rows = rows, .depth = width[l], .width = width[l + 1], .relu = net->relu,
                                  .a = below, .a_row = l ? wide(width[l]) : width[l], .a_deep = 1,
                                  .b = weights + t * size, .out = out});
            below = out;
            out += BLOCK * wide(width[l + 1]);
            weights += net->towers * size;
        }
        for (long o = 0; t == 0 && o < net->outputs; o++)
            times_vector(rows, p.top, below, p.heads + o * wide(p.top), policy_bias[o], policy + o * p.rows + first);
        if (t == net->towers - 1)
            times_vector(rows, p.top, below, p.heads + net->outputs * wide(p.top), *value_bias, value + first);
    }
}

/* Outputs that a tower gives: the first of them, and how many. */
static long outputs_of(const struct net *net, long t, long *count)
{
    *count = net->towers == 1 ? net->outputs + 1 : t ? 1 : net->outputs;
    return t ? net->outputs : 0;
}

static void backward_block(struct pass p, long first, const float *d_policy, const float *d_value)
{
    const struct net *net = p.net;
    const long *width = net->widths, rows = p.rows - first < BLOCK ? p.rows - first : BLOCK;
    for (long o = 0; o <= net->outputs; o++) {
        float *outs = p.outs + o * BLOCK;
        memcpy(outs, (o < net->outputs ? d_policy + o * p.rows : d_value) + first, rows * sizeof *outs);
        memset(outs + rows, 0, (BLOCK - rows) * sizeof *outs);
        for (long r = 0; r < BLOCK; r += LANES)
            AT(p.sums + o * LANES) += AT(outs + r);
    }
    const float *given = p.tape + (first / BLOCK + 1) * p.block; /* walked from its end */
    for (long t = net->towers - 1; t >= 0; t--) {
        long outputs, o = outputs_of(net, t, &outputs);
        float *delta = p.delta, *below = p.below, *grown = p.grown, *turned = p.heads;
        given -= BLOCK * wide(p.top);
        carry_back((struct product){.rows = rows, .depth = outputs, .width = p.top, .relu = net->relu,
                                    .a = p.outs + o * BLOCK, .a_row = 1, .a_deep = BLOCK,
                                    .b = p.heads + o * wide(p.top), .given = given, .out = delta});
        add((struct product){.rows = outputs, .depth = rows, .width = p.top,
                             .a = p.outs + o * BLOCK, .a_row = BLOCK, .a_deep = 1,
                             .b = given, .out = p.grown + o * wide(p.top)});
        for (long l = net->layers - 1; l >= 0; l--) {
            long in = width[l], out = width[l + 1];
            given -= l ? BLOCK * wide(in) : 0;
            grown -= net->towers * (in + 1) * wide(out);
            add_with_ones((struct product){.rows = in + 1, .depth = rows, .width = out,
                                           .a = l ? given : p.x + first * in, .a_row = 1, .a_deep = l ? wide(in) : in,
                                           .b = delta, .out = grown + t * (in + 1) * wide(out)});
            if (l == 0)
                break;
            turned -= net->towers * out * wide(in);
            carry_back((struct product){.rows = rows, .depth = out, .width = in, .relu = net->relu,
                                        .a = delta, .a_row = wide(out), .a_deep = 1,
                                        .b = turned + t * out * wide(in), .given = given, .out = below});
            float *used = delta;
            delta = below;
            below = used;
        }
    }
}

/* Rows from *next on, at most BLOCK, at which a gradient at the outputs of a tower is not zero; of two critics, for one,
   only the lesser counts. These gradients are put side by side. Gives how many rows there are, and goes past them. */
static long pick(struct pass p, long t, const float *d_policy, const float *d_value, long *next, long *picked)
{
    long count, o = outputs_of(p.net, t, &count), found = 0;
    for (; *next < p.rows && found < BLOCK; ++*next) {
        int matters = 0;
        for (long i = o; i < o + count; i++) {
            float d = (i < p.net->outputs ? d_policy + i * p.rows : d_value)[*next];
            p.outs[i * BLOCK + found] = d;
            matters |= d != 0.0f;
        }
        picked[found] = *next;
        found += matters;
    }
    return found;
}

/* What a layer of a tower gave for these rows, side by side. */
static const float *gather(struct pass p, long t, long layer, long rows, const long *picked)
{
    const long *width = p.net->widths;
    long before = t * (p.block / p.net->towers), row = wide(width[layer + 1]);
    for (long l = 0; l < layer; l++)
        before += BLOCK * wide(width[l + 1]);
    for (long r = 0; r < rows; r++) {
        const float *from = p.tape + picked[r] / BLOCK * p.block + before + picked[r] % BLOCK * row;
        memcpy(p.gathered + r * row, from, row * sizeof *from);
    }
    return p.gathered;
}

/* dx [rows, in] += the gradient at the inputs of the rows picked that comes through one tower. */
static void slopes_block(struct pass p, long t, long rows, const long *picked, float *dx)
{
    const struct net *net = p.net;
    const long *width = net->widths;
    long count, o = outputs_of(net, t, &count);
    float *delta = p.delta, *below = p.below, *turned = p.heads;
    carry_back((struct product){.rows = rows, .depth = count, .width = p.top, .relu = net->relu,
                                .a = p.outs + o * BLOCK, .a_row = 1, .a_deep = BLOCK, .b = p.heads + o * wide(p.top),
                                .given = gather(p, t, net->layers - 1, rows, picked), .out = delta});
    for (long l = net->layers - 1; l >= 0; l--) {
        long in = width[l], out = width[l + 1];
        turned -= net->towers * out * wide(in);
        struct product back = {.rows = rows, .depth = out, .width = in, .relu = net->relu,
                               .a = delta, .a_row = wide(out), .a_deep = 1,
                               .b = turned + t * out * wide(in), .out = below};
        if (l) {
            back.given = gather(p, t, l - 1, rows, picked);
            carry_back(back);
        } else { /* inputs were not bent */
            memset(below, 0, rows * wide(in) * sizeof *below);
            add(back);
        }
        float *used = delta;
        delta = below;
        below = used;
    }
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < width[0]; i++)
            dx[picked[r] * width[0] + i] += delta[r * wide(width[0]) + i];
}

/* Gradients of `count` outputs, the first of them o: [top, count] and biases [count]. Gives where writing ended. */
static float *give_heads(struct pass p, long o, long count, float *gradient)
{
    for (long k = 0; k < p.top; k++)
        for (long i = o; i < o + count; i++)
            *gradient++ = p.grown[i * wide(p.top) + k];
    for (long i = o; i < o + count; i++)
        *gradient++ = total(AT(p.sums + i * LANES));
    return gradient;
}

/* How many numbers the work area holds. */
long mill_mlp_room(const struct net *net, long rows)
{
    struct pass p = lay_out(net, rows, 0, (float *)64);
    return p.tape - p.layers + (rows + BLOCK - 1) / BLOCK * p.block + 64 / sizeof(float);
}

/* policy [outputs, rows] and value [rows] from x [rows, in]. The work area keeps what the way back needs. */
void mill_mlp_forward(const struct net *net, long rows, const float *weights, const float *x, float *work, float *policy,
                      float *value)
{
    struct pass p = lay_out(net, rows, x, work);
    float *to = p.layers;
    for (long l = 0; l < net->layers; l++) {
        long in = net->widths[l], out = net->widths[l + 1];
        for (long t = 0; t < net->towers; t++, weights += in * out)
            widen(weights, in, out, to + t * (in + 1) * wide(out));
        for (long t = 0; t < net->towers; t++, weights += out, to += (in + 1) * wide(out))
            widen(weights, 1, out, to + in * wide(out));
    }
    turn_heads(p, weights);
    for (long first = 0; first < rows; first += BLOCK)
        forward_block(p, first, weights, policy, value);
}

/* The gradient at the flat weights from those at policy [outputs, rows] and value [rows], after the way forward. */
void mill_mlp_backward(const struct net *net, long rows, const float *weights, const float *x, float *work,
                       const float *d_policy, const float *d_value, float *gradient)
{
    struct pass p = lay_out(net, rows, x, work);
    turn_layers(p, weights, 1);
    memset(p.layers, 0, (p.turned - p.layers) * sizeof(float));
    memset(p.sums, 0, (p.tape - p.sums) * sizeof(float));
    /* from the last block to the first: the last are still cached, and the first will be when the next rows come */
    for (long first = (rows - 1) / BLOCK * BLOCK; rows && first >= 0; first -= BLOCK)
        backward_block(p, first, d_policy, d_value);
    const float *from = p.layers;
    for (long l = 0; l < net->layers; l++) {
        long in = net->widths[l], out = net->widths[l + 1];
        for (long t = 0; t < net->towers; t++)
            for (long r = 0; r < in; r++, gradient += out)
                memcpy(gradient, from + (t * (in + 1) + r) * wide(out), out * sizeof(float));
        for (long t = 0; t < net->towers; t++, gradient += out, from += (in + 1) * wide(out))
            memcpy(gradient, from + in * wide(out), out * sizeof(float));
    }
    gradient = give_heads(p, 0, net->outputs, gradient);
    give_heads(p, net->outputs, 1, gradient);
}

/* The gradient dx [rows, in] at the inputs from those at policy [outputs, rows] and value [rows], after the way forward. */
void mill_mlp_slopes(const struct net *net, long rows, const float *weights, const float *x, float *work,
                     const float *d_policy, const float *d_value, float *dx)
{
    struct pass p = lay_out(net, rows, x, work);
    turn_layers(p, weights, 0);
    memset(dx, 0, rows * net->widths[0] * sizeof *dx);
    for (long t = 0; t < net->towers; t++) {
        long next = 0, found, picked[BLOCK];
        while ((found = pick(p, t, d_policy, d_value, &next, picked)))
            slopes_block(p, t, found, picked, dx);
    }
}

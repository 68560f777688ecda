/* Convolutions over images, each followed by ReLU: the whole way forward and the whole way back, one call each.

   No image is unfolded: a tile of the result holds TALL positions, and each walks through its own patch of the image. The
   weights' gradients and those of the layer below are sums of the same kind over other places, so one walk serves all three.

   The flat weights are, for each layer, [out, in, kernel, kernel] and biases [out]. Pixels come plane by plane; what layers
   give lies position by position, all channels of one together, inside the margin of zeros that the next layer wants. Where
   vectors read, numbers stand in panels: [panels, rows, PANEL]. */

#include "tiles.h"

enum { GROUP = 4 }; /* images that go back together: they still fit into 1 MB, and sums are written a quarter as often */

struct convolution {
    long channels, kernel, stride, padding;
};

struct picture { /* built in convolutions.py */
    long channels, height, width, layers;
    struct convolution layer[];
};

/* Where numbers that are summed lie: three loops, the last the innermost. */
struct walk {
    long count[3], far[3];
};

/* One layer, and where its things stand in the work area. */
struct stage {
    long in, out, kernel, stride, padding;
    long down, across;        /* the positions of what it gives */
    long plane, row, column;  /* how far apart channels, rows and columns lie in what it reads, margin and all */
    long reads, depth;        /* numbers of one image in that; and in one patch of it */
    long panels, run, slices; /* panels of out; numbers of a patch that lie in one piece, and panels of such a run */
    struct walk patch;
    float *packed; /* [panels, depth + 1, PANEL] weights, the bias last */
    float *grown;  /* the same of gradients */
    float *turned; /* [runs, slices, panels of out * PANEL, PANEL] weights for the way back */
};

enum { MOST_LAYERS = 8 };

struct route {
    long layers, gives, widest, room; /* gives: numbers of one image that all layers give; widest: of one delta */
    struct stage stage[MOST_LAYERS + 1];    /* one more: the margin around what the last one gives is none */
    float *seen;                            /* [GROUP] images as floats */
    float *delta, *below;                   /* [GROUP, panels, positions, PANEL] gradients at a layer, at the one below */
    float *spread;                          /* gradients at all that a layer reads, margin included */
    float *tape;                            /* [rows, gives] */
};

INLINE long panels_of(long width) { return (width + PANEL - 1) / PANEL; }

static struct route lay_out(const struct picture *picture, long rows, float *work)
{
    struct route route = {.layers = picture->layers};
    long channels = picture->channels, height = picture->height, width = picture->width, widest_read = 0;
    for (long l = 0; l <= picture->layers; l++) {
        struct stage *s = &route.stage[l];
        int last = l == picture->layers;
        struct convolution c = last ? (struct convolution){.channels = 1, .kernel = 1, .stride = 1} : picture->layer[l];
        *s = (struct stage){.in = channels, .out = c.channels, .kernel = c.kernel, .stride = c.stride, .padding = c.padding};
        long lines = height + 2 * c.padding, line = width + 2 * c.padding;
        s->down = (lines - c.kernel) / c.stride + 1;
        s->across = (line - c.kernel) / c.stride + 1;
        s->reads = channels * lines * line;
        s->depth = channels * c.kernel * c.kernel;
        s->panels = panels_of(c.channels);
        s->plane = l ? 1 : lines * line;
        s->column = l ? channels : 1;
        s->row = line * s->column;
        s->run = l ? c.kernel * channels : c.kernel;
        s->slices = panels_of(s->run);
        s->patch = (struct walk){{l ? 1 : channels, c.kernel, s->run}, {s->plane, s->row, 1}};
        if (l)
            route.gives += s->reads;
        if (l && s->reads > widest_read)
            widest_read = s->reads;
        if (!last && s->panels * PANEL * s->down * s->across > route.widest)
            route.widest = s->panels * PANEL * s->down * s->across;
        channels = c.channels, height = s->down, width = s->across;
    }
    float *start = (float *)(((uintptr_t)work + 63) / 64 * 64), *next = start;
    for (long l = 0; l < route.layers; l++) {
        struct stage *s = &route.stage[l];
        s->packed = next, next += s->panels * (s->depth + 1) * PANEL;
        s->grown = next, next += s->panels * (s->depth + 1) * PANEL;
        s->turned = next, next += l ? s->kernel * s->slices * s->panels * PANEL * PANEL : 0;
    }
    route.delta = next, next += GROUP * route.widest;
    route.below = next, next += GROUP * route.widest;
    route.seen = next, next += GROUP * route.stage[0].reads;
    route.spread = next, next += widest_read;
    route.tape = next, next += rows * route.gives;
    route.room = next - start + 64 / sizeof(float);
    return route;
}

/* Where the patch of a position begins in what a layer reads. */
INLINE long corner(const struct stage *s, long position)
{
    return position / s->across * s->stride * s->row + position % s->across * s->stride * s->column;
}

/* Where a position of what the layer before gave stands in what this one reads. */
INLINE long inside(const struct stage *s, long position, long across)
{
    return (position / across + s->padding) * s->row + (position % across + s->padding) * s->column;
}

/* Where the numbers of a patch stand, counted from its corner. */
INLINE long offset(struct walk w, long m)
{
    long inner = m / w.count[2];
    return inner / w.count[1] * w.far[0] + inner % w.count[1] * w.far[1] + m % w.count[2] * w.far[2];
}

/* sum [tall, PANEL] += a [tall, steps of the walk] times b [steps, PANEL]; every row of a begins at a place of its own */
INLINE void gather(vector sum[TALL][ACROSS], int tall, const float *const a[TALL], struct walk w, const float *b)
{
    for (long i = 0; i < w.count[0]; i++)
        for (long j = 0; j < w.count[1]; j++) {
            long at = i * w.far[0] + j * w.far[1];
            for (long k = 0; k < w.count[2]; k++, at += w.far[2], b += PANEL)
                for (int r = 0; r < tall; r++)
                    for (int c = 0; c < ACROSS; c++)
                        sum[r][c] += a[r][at] * AT(b + c * LANES);
        }
}

/* What the tiles of one kind need to know. */
struct job {
    const struct stage *stage, *next;
    const float *from, *delta; /* what the layer read, and gradients at what it gave */
    float *to;
    long images, apart; /* how many go together, and how far apart they stand in `from` */
};

INLINE void forward_tile(struct job j, int tall, long panel, long first)
{
    const struct stage *s = j.stage;
    const float *b = s->packed + panel * (s->depth + 1) * PANEL, *a[TALL];
    long width = s->out - panel * PANEL < PANEL ? s->out - panel * PANEL : PANEL;
    vector sum[TALL][ACROSS];
    for (int r = 0; r < tall; r++) {
        a[r] = j.from + corner(s, first + r);
        for (int c = 0; c < ACROSS; c++)
            sum[r][c] = AT(b + s->depth * PANEL + c * LANES);
    }
    gather(sum, tall, a, s->patch, b);
    for (int r = 0; r < tall; r++) {
        float *to = j.to + inside(j.next, first + r, s->across) + panel * PANEL;
        for (int c = 0; c < ACROSS; c++)
            sum[r][c] = bent(sum[r][c], 1);
        memcpy(to, sum[r], width * sizeof *to);
    }
}

/* Rows are numbers of a patch: the gradients of their weights, over all positions of all images of a group. */
INLINE void grow_tile(struct job j, int tall, long panel, long first)
{
    const struct stage *s = j.stage;
    long positions = s->down * s->across;
    struct walk all = {{1, s->down, s->across}, {0, s->stride * s->row, s->stride * s->column}};
    float *to = s->grown + (panel * (s->depth + 1) + first) * PANEL;
    vector sum[TALL][ACROSS];
    for (int r = 0; r < tall; r++)
        for (int c = 0; c < ACROSS; c++)
            sum[r][c] = AT(to + r * PANEL + c * LANES);
    for (long image = 0; image < j.images; image++) {
        const float *a[TALL];
        for (int r = 0; r < tall; r++)
            a[r] = j.from + image * j.apart + offset(s->patch, first + r);
        gather(sum, tall, a, all, j.delta + (image * s->panels + panel) * positions * PANEL);
    }
    for (int r = 0; r < tall; r++)
        for (int c = 0; c < ACROSS; c++)
            AT(to + r * PANEL + c * LANES) = sum[r][c];
}

/* Panels are those of the runs of a patch: what each position sends to the numbers that it was made from. */
INLINE void spread_tile(struct job j, int tall, long panel, long first)
{
    const struct stage *s = j.stage;
    long depth = s->panels * PANEL, slice = panel % s->slices * PANEL;
    long width = s->run - slice < PANEL ? s->run - slice : PANEL;
    struct walk channels = {{1, s->panels, PANEL}, {0, s->down * s->across * PANEL, 1}};
    const float *a[TALL];
    vector sum[TALL][ACROSS];
    for (int r = 0; r < tall; r++) {
        a[r] = j.delta + (first + r) * PANEL;
        for (int c = 0; c < ACROSS; c++)
            sum[r][c] = (vector){0};
    }
    gather(sum, tall, a, channels, s->turned + panel * depth * PANEL);
    for (int r = 0; r < tall; r++) { /* patches overlap: one after the other */
        float *to = j.to + corner(s, first + r) + panel / s->slices * s->row + slice;
        if (width == PANEL)
            for (int c = 0; c < ACROSS; c++) {
                vector before;
                memcpy(&before, to + c * LANES, sizeof before);
                before += sum[r][c];
                memcpy(to + c * LANES, &before, sizeof before);
            }
        else
            for (long i = 0; i < width; i++)
                to[i] += ((float *)sum[r])[i];
    }
}

#define ALL_TILES(kind)                                                                                                  \
    APART void kind##_tiles(struct job j, long rows, long panels)                                                        \
    {                                                                                                                    \
        for (long panel = 0; panel < panels; panel++) {                                                                  \
            long r = 0;                                                                                                  \
            for (; r + TALL <= rows; r += TALL)                                                                          \
                kind##_tile(j, TALL, panel, r);                                                                          \
            switch (rows - r) {                                                                                          \
            case 5: kind##_tile(j, 5, panel, r); break;                                                                  \
            case 4: kind##_tile(j, 4, panel, r); break;                                                                  \
            case 3: kind##_tile(j, 3, panel, r); break;                                                                  \
            case 2: kind##_tile(j, 2, panel, r); break;                                                                  \
            case 1: kind##_tile(j, 1, panel, r); break;                                                                  \
            }                                                                                                            \
        }                                                                                                                \
    }

ALL_TILES(forward)
ALL_TILES(grow)
ALL_TILES(spread)

/* Where the weight of one output and one number of a patch stands among the flat weights of a layer. */
INLINE long flat_place(const struct stage *s, long out, long m)
{
    if (s->plane > 1) /* planes: the patch has the order of the weights */
        return out * s->depth + m;
    long area = s->kernel * s->kernel;
    return out * s->depth + m % s->in * area + m / s->in;
}

static void pack(const struct stage *s, const float *weights, float scale)
{
    memset(s->packed, 0, s->panels * (s->depth + 1) * PANEL * sizeof(float));
    for (long o = 0; o < s->out; o++) {
        float *to = s->packed + o / PANEL * (s->depth + 1) * PANEL + o % PANEL;
        for (long m = 0; m < s->depth; m++)
            to[m * PANEL] = weights[flat_place(s, o, m)] * scale;
        to[s->depth * PANEL] = weights[s->out * s->depth + o];
    }
}

static void turn_around(const struct stage *s, const float *weights)
{
    long depth = s->panels * PANEL;
    memset(s->turned, 0, s->kernel * s->slices * depth * PANEL * sizeof(float));
    for (long m = 0; m < s->depth; m++) {
        long slice = m / s->run * s->slices + m % s->run / PANEL;
        for (long o = 0; o < s->out; o++)
            s->turned[(slice * depth + o) * PANEL + m % s->run % PANEL] = weights[flat_place(s, o, m)];
    }
}

static long weights_of(const struct stage *s) { return s->out * (s->depth + 1); }

/* Pixels as floats, inside the margin. */
static void look(const struct stage *s, const struct picture *picture, const uint8_t *pixels, float *to)
{
    if (s->padding)
        memset(to, 0, s->reads * sizeof *to);
    for (long c = 0; c < picture->channels; c++)
        for (long y = 0; y < picture->height; y++) {
            float *line = to + c * s->plane + (y + s->padding) * s->row + s->padding;
            for (long x = 0; x < picture->width; x++)
                line[x] = *pixels++;
        }
}

/* Gradients at what a layer gave, in panels, where it gave more than nothing; `given` and `sent` may have margins. */
static void bring(const struct stage *s, const struct stage *next, const float *given, const float *sent, float *delta)
{
    long positions = s->down * s->across;
    for (long p = 0; p < positions; p++) {
        long at = inside(next, p, s->across);
        for (long panel = 0; panel < s->panels; panel++) {
            float *to = delta + (panel * positions + p) * PANEL;
            long begin = panel * PANEL, width = s->out - begin < PANEL ? s->out - begin : PANEL;
            for (long i = 0; i < width; i++)
                to[i] = given[at + begin + i] > 0 ? sent[at + begin + i] : 0;
            for (long i = width; i < PANEL; i++)
                to[i] = 0;
        }
    }
}

static void add_biases(const struct stage *s, const float *delta, long images)
{
    long positions = s->down * s->across;
    for (long panel = 0; panel < s->panels; panel++)
        for (long c = 0; c < PANEL; c += LANES) {
            float *to = s->grown + (panel * (s->depth + 1) + s->depth) * PANEL + c;
            vector sum = AT(to);
            for (long image = 0; image < images; image++) {
                const float *from = delta + (image * s->panels + panel) * positions * PANEL + c;
                for (long p = 0; p < positions; p++)
                    sum += AT(from + p * PANEL);
            }
            AT(to) = sum;
        }
}

/* The images of one group, from the features down to the weights of the first layer. */
static void backward_group(struct route *route, const struct picture *picture, long first, long images,
                           const uint8_t *pixels, const float *d_features)
{
    const struct stage *s = &route->stage[route->layers - 1];
    long channels = s->out, positions = s->down * s->across, features = channels * positions;
    for (long image = 0; image < images; image++) { /* features stand plane by plane */
        const float *from = d_features + (first + image) * features;
        for (long p = 0; p < positions; p++)
            for (long c = 0; c < channels; c++)
                route->spread[p * channels + c] = from[c * positions + p];
        const float *given = route->tape + (first + image + 1) * route->gives - features;
        bring(s, s + 1, given, route->spread, route->delta + image * s->panels * positions * PANEL);
        look(&route->stage[0], picture, pixels + (first + image) * picture->channels * picture->height * picture->width,
             route->seen + image * route->stage[0].reads);
    }
    long end = route->gives - features; /* where what the layer below gave ends, in the tape of one image */
    for (long l = route->layers - 1; l >= 0; l--, s--) {
        long size = s->panels * s->down * s->across * PANEL;
        const float *read = l ? route->tape + first * route->gives + end - s->reads : route->seen;
        grow_tiles((struct job){.stage = s, .from = read, .delta = route->delta, .images = images,
                                .apart = l ? route->gives : s->reads},
                   s->depth, s->panels);
        add_biases(s, route->delta, images);
        if (l == 0)
            break;
        const struct stage *under = s - 1;
        for (long image = 0; image < images; image++) {
            memset(route->spread, 0, s->reads * sizeof(float));
            spread_tiles((struct job){.stage = s, .delta = route->delta + image * size, .to = route->spread},
                         s->down * s->across, s->kernel * s->slices);
            bring(under, s, read + image * route->gives, route->spread,
                  route->below + image * under->panels * under->down * under->across * PANEL);
        }
        end -= s->reads;
        float *used = route->delta;
        route->delta = route->below;
        route->below = used;
    }
}

/* How many numbers the work area holds. */
long mill_conv_room(const struct picture *picture, long rows) { return lay_out(picture, rows, (float *)64).room; }

/* features [rows, channels * positions] of pixels [rows, channels, height, width], which count as `scale` each. The work
   area keeps what the way back needs. */
void mill_conv_forward(const struct picture *picture, long rows, const float *weights, float scale, const uint8_t *pixels,
                       float *work, float *features)
{
    struct route route = lay_out(picture, rows, work);
    for (long l = 0; l < route.layers; l++) {
        pack(&route.stage[l], weights, l ? 1 : scale);
        weights += weights_of(&route.stage[l]);
    }
    for (long row = 0; row < rows; row++) {
        look(&route.stage[0], picture, pixels, route.seen);
        pixels += picture->channels * picture->height * picture->width;
        const float *from = route.seen;
        float *to = route.tape + row * route.gives;
        for (long l = 0; l < route.layers; l++) {
            const struct stage *s = &route.stage[l], *next = s + 1;
            if (next->padding)
                memset(to, 0, next->reads * sizeof *to);
            forward_tiles((struct job){.stage = s, .next = next, .from = from, .to = to}, s->down * s->across, s->panels);
            from = to;
            to += next->reads;
        }
        const struct stage *top = &route.stage[route.layers - 1];
        long positions = top->down * top->across;
        for (long c = 0; c < top->out; c++)
            for (long p = 0; p < positions; p++)
                *features++ = from[p * top->out + c];
    }
}

/* The gradient at the flat weights from that at the features, after the way forward. */
void mill_conv_backward(const struct picture *picture, long rows, const float *weights, float scale,
                        const uint8_t *pixels, float *work, const float *d_features, float *gradient)
{
    struct route route = lay_out(picture, rows, work);
    for (long l = 0; l < route.layers; l++) {
        struct stage *s = &route.stage[l];
        if (l)
            turn_around(s, weights);
        weights += weights_of(s);
        memset(s->grown, 0, s->panels * (s->depth + 1) * PANEL * sizeof(float));
    }
    for (long first = 0; first < rows; first += GROUP)
        backward_group(&route, picture, first, rows - first < GROUP ? rows - first : GROUP, pixels, d_features);
    for (long l = 0; l < route.layers; l++) {
        const struct stage *s = &route.stage[l];
        for (long o = 0; o < s->out; o++) {
            const float *from = s->grown + o / PANEL * (s->depth + 1) * PANEL + o % PANEL;
            for (long m = 0; m < s->depth; m++)
                gradient[flat_place(s, o, m)] = from[m * PANEL] * (l ? 1 : scale);
            gradient[s->out * s->depth + o] = from[s->depth * PANEL];
        }
        gradient += weights_of(s);
    }
}

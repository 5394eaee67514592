"""The table of TensorFlow's names: each is an op of ours with arguments renamed.

A line has TensorFlow's function and ours, with their arguments in the same order; `=`
after an argument is TensorFlow's default if ours differs. A prefix names our module,
`ops` by default. Functions that differ in more than names are defined in this room
(`arrays.`, `reductions.`, `nets.`, `pictures.`, `host.`).
"""

from __future__ import annotations

# The modules that have the functions, "" for `tf` itself, and the functions.
FUNCTIONS: tuple[tuple[str, str], ...] = (
    (
        " math",
        """
        abs(x) = abs(x)
        acos(x) = arccos(x)
        acosh(x) = arccosh(x)
        add(x, y) = add(x1, x2)
        add_n(inputs) = reductions.add_n(inputs)
        argmax(input, axis, output_type) = reductions.argmax(input, axis, output_type)
        argmin(input, axis, output_type) = reductions.argmin(input, axis, output_type)
        asin(x) = arcsin(x)
        asinh(x) = arcsinh(x)
        atan(x) = arctan(x)
        atan2(y, x) = arctan2(x1, x2)
        atanh(x) = arctanh(x)
        cos(x) = cos(x)
        cosh(x) = cosh(x)
        cumsum(x, axis, exclusive, reverse) = \
reductions.cumsum(x, axis, exclusive, reverse)
        divide(x, y) = divide(x1, x2)
        equal(x, y) = equal(x1, x2)
        exp(x) = exp(x)
        floor(x) = floor(x)
        greater(x, y) = greater(x1, x2)
        greater_equal(x, y) = greater_equal(x1, x2)
        less(x, y) = less(x1, x2)
        less_equal(x, y) = less_equal(x1, x2)
        logical_and(x, y) = logical_and(x1, x2)
        logical_not(x) = logical_not(x)
        logical_or(x, y) = logical_or(x1, x2)
        maximum(x, y) = maximum(x1, x2)
        minimum(x, y) = minimum(x1, x2)
        multiply(x, y) = multiply(x1, x2)
        negative(x) = negative(x)
        not_equal(x, y) = not_equal(x1, x2)
        pow(x, y) = power(x1, x2)
        reduce_all(input_tensor, axis, keepdims) = all(x, axis, keepdims)
        reduce_any(input_tensor, axis, keepdims) = any(x, axis, keepdims)
        reduce_logsumexp(input_tensor, axis, keepdims) = logsumexp(x, axis, keepdims)
        reduce_max(input_tensor, axis, keepdims) = max(x, axis, keepdims)
        reduce_mean(input_tensor, axis, keepdims) = \
reductions.reduce_mean(input_tensor, axis, keepdims)
        reduce_min(input_tensor, axis, keepdims) = min(x, axis, keepdims)
        reduce_prod(input_tensor, axis, keepdims) = prod(x, axis, keepdims)
        reduce_sum(input_tensor, axis, keepdims) = sum(x, axis, keepdims)
        round(x) = round(x)
        scalar_mul(scalar, x) = multiply(x1, x2)
        sigmoid(x) = sigmoid(x)
        sign(x) = sign(x)
        sin(x) = sin(x)
        sinh(x) = sinh(x)
        sqrt(x) = sqrt(x)
        square(x) = square(x)
        subtract(x, y) = subtract(x1, x2)
        tan(x) = tan(x)
        tanh(x) = tanh(x)
        truediv(x, y) = divide(x1, x2)
        """,
    ),
    (
        "math",
        """
        accumulate_n(inputs) = reductions.add_n(inputs)
        conj(x) = conj(x)
        invert_permutation(x) = argsort(x)
        log_softmax(logits, axis=-1) = log_softmax(x, axis)
        polyval(coeffs, x) = special.polyval(coeffs, x)
        rint(x) = round(x)
        imag(input) = imag(x)
        real(input) = real(x)
        squared_difference(x, y) = special.squared_difference(x, y)
        bincount(arr, weights, minlength, axis) = \
reductions.bincount(arr, weights, minlength, axis)
        ceil(x) = ceil(x)
        count_nonzero(input, axis, keepdims, dtype) = \
reductions.count_nonzero(input, axis, keepdims, dtype)
        cumprod(x, axis, exclusive, reverse) = \
reductions.cumprod(x, axis, exclusive, reverse)
        divide_no_nan(x, y) = divide_no_nan(x1, x2)
        erf(x) = erf(x)
        erfinv(x) = erfinv(x)
        expm1(x) = expm1(x)
        floordiv(x, y) = floor_divide(x1, x2)
        floormod(x, y) = mod(x1, x2)
        in_top_k(targets, predictions, k) = in_top_k(targets, predictions, k)
        is_finite(x) = isfinite(x)
        is_inf(x) = isinf(x)
        is_nan(x) = isnan(x)
        l2_normalize(x, axis, epsilon) = nets.l2_normalize(x, axis, epsilon)
        log(x) = log(x)
        log1p(x) = log1p(x)
        log_sigmoid(x) = log_sigmoid(x)
        logical_xor(x, y) = logical_xor(x1, x2)
        mod(x, y) = mod(x1, x2)
        multiply_no_nan(x, y) = special.multiply_no_nan(x, y)
        reciprocal(x) = reciprocal(x)
        reduce_euclidean_norm(input_tensor, axis, keepdims) = norm(x, axis, keepdims)
        reduce_std(input_tensor, axis, keepdims) = std(x, axis, keepdims)
        reduce_variance(input_tensor, axis, keepdims) = var(x, axis, keepdims)
        rsqrt(x) = rsqrt(x)
        segment_sum(data, segment_ids) = segment_sum(data, segment_ids)
        softplus(features) = softplus(x)
        softsign(features) = softsign(x)
        top_k(input, k, sorted) = arrays.top_k(input, k, sorted)
        confusion_matrix(labels, predictions, num_classes, weights, dtype) = \
reductions.confusion_matrix(labels, predictions, num_classes, weights, dtype)
        erfc(x) = special.erfc(x)
        segment_max(data, segment_ids) = \
reductions.sorted_segment_max(data, segment_ids)
        segment_mean(data, segment_ids) = reductions.segment_mean(data, segment_ids)
        softmax(logits, axis=-1) = softmax(x, axis)
        unsorted_segment_max(data, segment_ids, num_segments) = \
reductions.segment_max(data, segment_ids, num_segments)
        unsorted_segment_mean(data, segment_ids, num_segments) = \
reductions.segment_mean(data, segment_ids, num_segments)
        unsorted_segment_sum(data, segment_ids, num_segments) = \
segment_sum(data, segment_ids, num_segments)
        angle(input) = angle(x)
        cumulative_logsumexp(x, axis, exclusive, reverse) = \
special.cumulative_logsumexp(x, axis, exclusive, reverse)
        digamma(x) = special.digamma(x)
        is_non_decreasing(x) = special.is_non_decreasing(x)
        is_strictly_increasing(x) = special.is_strictly_increasing(x)
        lgamma(x) = special.lgamma(x)
        reciprocal_no_nan(x) = special.reciprocal_no_nan(x)
        segment_min(data, segment_ids) = \
reductions.sorted_segment_min(data, segment_ids)
        segment_prod(data, segment_ids) = segment_prod(data, segment_ids)
        unsorted_segment_min(data, segment_ids, num_segments) = \
reductions.segment_min(data, segment_ids, num_segments)
        unsorted_segment_prod(data, segment_ids, num_segments) = \
segment_prod(data, segment_ids, num_segments)
        unsorted_segment_sqrt_n(data, segment_ids, num_segments) = \
reductions.segment_sqrt_n(data, segment_ids, num_segments)
        xdivy(x, y) = special.xdivy(x, y)
        xlog1py(x, y) = special.xlog1py(x, y)
        xlogy(x, y) = special.xlogy(x, y)
        zero_fraction(value) = reductions.zero_fraction(value)
        """,
    ),
    (
        "",
        """
        as_string(input) = texts.as_string(input)
        boolean_mask(tensor, mask, axis) = arrays.boolean_mask(tensor, mask, axis)
        broadcast_to(input, shape) = broadcast_to(x, shape)
        cast(x, dtype) = complexes.cast(x, dtype)
        clip_by_global_norm(t_list, clip_norm) = \
linalg.clip_by_global_norm(t_list, clip_norm)
        clip_by_norm(t, clip_norm, axes) = linalg.clip_by_norm(t, clip_norm, axes)
        clip_by_value(t, clip_value_min, clip_value_max) = clip(x, x_min, x_max)
        concat(values, axis) = arrays.concat(values, axis)
        cond(pred, true_fn, false_fn) = cond(pred, true_fn, false_fn)
        constant(value, dtype, shape) = arrays.constant(value, dtype, shape)
        convert_to_tensor(value, dtype) = convert_to_tensor(x, dtype)
        ensure_shape(x, shape) = arrays.ensure_shape(x, shape)
        expand_dims(input, axis) = expand_dims(x, axis)
        eye(num_rows, num_columns, batch_shape, dtype=float32) = \
linalg.eye(num_rows, num_columns, batch_shape, dtype)
        fill(dims, value) = arrays.fill(dims, value)
        gather(params, indices, axis, batch_dims) = \
arrays.gather(params, indices, axis, batch_dims)
        gather_nd(params, indices, batch_dims) = \
arrays.gather_nd(params, indices, batch_dims)
        identity(input) = arrays.identity(input)
        is_tensor(x) = arrays.is_tensor(x)
        linspace(start, stop, num) = linspace(start, stop, num)
        map_fn(fn, elems, dtype, infer_shape, fn_output_signature) = \
control.map_fn(fn, elems, dtype, infer_shape, fn_output_signature)
        matmul(a, b, transpose_a, transpose_b) = \
linalg.matmul(a, b, transpose_a, transpose_b)
        norm(tensor, ord, axis, keepdims) = linalg.norm(tensor, ord, axis, keepdims)
        one_hot(indices, depth, on_value, off_value, axis, dtype) = \
arrays.one_hot(indices, depth, on_value, off_value, axis, dtype)
        ones(shape, dtype=float32) = ones(shape, dtype)
        ones_like(input, dtype) = ones_like(x, dtype)
        pad(tensor, paddings, mode, constant_values) = \
arrays.pad(tensor, paddings, mode, constant_values)
        print(*) = host.print_tensors(*)
        py_function(func, inp, Tout) = host.py_function(func, inp, Tout)
        numpy_function(func, inp, Tout, stateful) = \
host.numpy_function(func, inp, Tout, stateful)
        Assert(condition, data) = checks.assert_true(condition, data)
        assert_equal(x, y, message) = checks.assert_equal(x, y, message)
        case(pred_fn_pairs, default, exclusive, strict) = \
control.case(pred_fn_pairs, default, exclusive, strict)
        complex(real, imag) = signals.make_complex(real, imag)
        dynamic_partition(data, partitions, num_partitions) = \
arrays.dynamic_partition(data, partitions, num_partitions)
        get_static_value(tensor) = host.get_static_value(tensor)
        grad_pass_through(f) = host.grad_pass_through(f)
        group(*) = runtime.hint(*)
        histogram_fixed_width(values, value_range, nbins, dtype) = \
reductions.histogram_fixed_width(values, value_range, nbins, dtype)
        no_op() = runtime.hint()
        recompute_grad(f) = host.recompute_grad(f)
        reverse_sequence(input, seq_lengths, seq_axis, batch_axis) = \
arrays.reverse_sequence(input, seq_lengths, seq_axis, batch_axis)
        tensor_scatter_nd_sub(tensor, indices, updates) = \
arrays.scatter_nd_sub(tensor, indices, updates)
        timestamp() = host.timestamp()
        unravel_index(indices, dims) = arrays.unravel_index(indices, dims)
        range(start, limit, delta, dtype) = arrays.range_(start, limit, delta, dtype)
        rank(input) = arrays.rank(input)
        repeat(input, repeats, axis) = repeat(x, repeats, axis)
        reshape(tensor, shape) = reshape(x, newshape)
        reverse(tensor, axis) = flip(x, axis)
        roll(input, shift, axis) = roll(x, shift, axis)
        scatter_nd(indices, updates, shape) = scatter(indices, values, shape)
        sequence_mask(lengths, maxlen, dtype) = \
arrays.sequence_mask(lengths, maxlen, dtype)
        shape(input, out_type) = arrays.shape(input, out_type)
        size(input, out_type) = arrays.size(input, out_type)
        slice(input_, begin, size) = arrays.slice_(input_, begin, size)
        sort(values, axis, direction) = arrays.sort(values, axis, direction)
        argsort(values, axis, direction, stable) = \
arrays.argsort(values, axis, direction, stable)
        split(value, num_or_size_splits, axis) = \
arrays.split(value, num_or_size_splits, axis)
        squeeze(input, axis) = squeeze(x, axis)
        stack(values, axis) = stack(x, axis)
        stop_gradient(input) = stop_gradient(variable)
        foldl(fn, elems, initializer) = control.foldl(fn, elems, initializer)
        foldr(fn, elems, initializer) = control.foldr(fn, elems, initializer)
        meshgrid(*) = arrays.meshgrid(*)
        realdiv(x, y) = divide(x1, x2)
        saturate_cast(value, dtype) = saturate_cast(x, dtype)
        scan(fn, elems, initializer, reverse) = \
control.scan(fn, elems, initializer, reverse)
        searchsorted(sorted_sequence, values, side) = \
searchsorted(sorted_sequence, values, side)
        strided_slice(input_, begin, end, strides) = \
arrays.strided_slice(input_, begin, end, strides)
        switch_case(branch_index, branch_fns) = \
control.switch_case(branch_index, branch_fns)
        tensor_scatter_nd_add(tensor, indices, updates) = \
arrays.tensor_scatter_nd_add(tensor, indices, updates)
        tensor_scatter_nd_max(tensor, indices, updates) = \
scatter_update(inputs, indices, updates, reduction=max)
        tensor_scatter_nd_min(tensor, indices, updates) = \
scatter_update(inputs, indices, updates, reduction=min)
        tensor_scatter_nd_update(tensor, indices, updates) = \
scatter_update(inputs, indices, updates)
        unique(x) = arrays.unique(x)
        unique_with_counts(x) = arrays.unique_with_counts(x)
        tile(input, multiples) = tile(x, repeats)
        transpose(a, perm) = transpose(x, axes)
        unstack(value, num, axis) = unstack(x, num, axis)
        vectorized_map(fn, elems) = vectorized_map(function, elements)
        where(condition, x, y) = arrays.where(condition, x, y)
        while_loop(cond, body, loop_vars, shape_invariants, maximum_iterations) = \
control.while_loop(cond, body, loop_vars, shape_invariants, maximum_iterations)
        zeros(shape, dtype) = arrays.zeros(shape, dtype)
        zeros_like(input, dtype) = zeros_like(x, dtype)
        """,
    ),
    (
        "compat.v1",
        """
        to_double(x) = cast(x, dtype=float64)
        to_float(x) = cast(x, dtype=float32)
        to_int32(x) = cast(x, dtype=int32)
        to_int64(x) = cast(x, dtype=int64)
        nn.ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths, \
merge_repeated=True) = nets.ctc_beam_search_decoder(inputs, sequence_length, \
beam_width, top_paths, merge_repeated)
        """,
    ),
    (
        " linalg",
        """
        einsum(equation, *) = einsum(subscripts, *)
        tensordot(a, b, axes) = tensordot(x1, x2, axes)
        """,
    ),
    (
        "linalg",
        """
        band_part(input, num_lower, num_upper) = \
linalg.band_part(input, num_lower, num_upper)
        adjoint(matrix) = linalg.adjoint(matrix)
        cholesky(input) = cholesky(x)
        cross(a, b) = cross(x1, x2)
        expm(input) = linalg.expm(input)
        matrix_rank(a) = matrix_rank(x)
        pinv(a) = pinv(x)
        slogdet(input) = slogdet(x)
        tensor_diag_part(input) = linalg.tensor_diag_part(input)
        triangular_solve(matrix, rhs, lower=True) = solve_triangular(a, b, lower)
        det(input) = det(x)
        diag(diagonal) = linalg.diag(diagonal)
        diag_part(input) = diagonal(x, axis1=-2, axis2=-1)
        eigh(tensor) = eigh(x)
        eye(num_rows, num_columns, batch_shape, dtype=float32) = \
linalg.eye(num_rows, num_columns, batch_shape, dtype)
        global_norm(t_list) = linalg.global_norm(t_list)
        inv(input) = inv(x)
        lstsq(matrix, rhs) = lstsq(a, b)
        matmul(a, b, transpose_a, transpose_b) = \
linalg.matmul(a, b, transpose_a, transpose_b)
        l2_normalize(x, axis, epsilon) = nets.l2_normalize(x, axis, epsilon)
        logdet(matrix) = linalg.logdet(matrix)
        matrix_transpose(a) = linalg.matrix_transpose(a)
        matvec(a, b) = linalg.matvec(a, b)
        set_diag(input, diagonal) = linalg.set_diag(input, diagonal)
        svd(tensor, full_matrices, compute_uv) = \
linalg.svd(tensor, full_matrices, compute_uv)
        tensor_diag(diagonal) = linalg.tensor_diag(diagonal)
        norm(tensor, ord, axis, keepdims) = linalg.norm(tensor, ord, axis, keepdims)
        normalize(tensor, ord, axis) = linalg.normalize(tensor, ord, axis)
        qr(input) = qr(x)
        solve(matrix, rhs) = solve(a, b)
        trace(x) = trace(x, axis1=-2, axis2=-1)
        """,
    ),
    (
        "nn",
        """
        avg_pool2d(input, ksize, strides, padding, data_format) = \
nets.avg_pool(input, ksize, strides, padding, data_format)
        batch_normalization(x, mean, variance, offset, scale, variance_epsilon) = \
nets.batch_normalization(x, mean, variance, offset, scale, variance_epsilon)
        bias_add(value, bias) = add(x1, x2)
        conv1d(input, filters, stride, padding, data_format, dilations) = \
nets.conv1d(input, filters, stride, padding, data_format, dilations)
        conv2d_transpose(input, filters, output_shape, strides, padding, \
data_format) = nets.conv2d_transpose(input, filters, output_shape, strides, padding, \
data_format)
        avg_pool1d(input, ksize, strides, padding, data_format=NWC) = \
nets.avg_pool(input, ksize, strides, padding, data_format)
        avg_pool3d(input, ksize, strides, padding, data_format=NDHWC) = \
nets.avg_pool(input, ksize, strides, padding, data_format)
        convolution(input, filters, strides, padding, data_format, dilations) = \
nets.convolution(input, filters, strides, padding, data_format, dilations)
        max_pool1d(input, ksize, strides, padding, data_format=NWC) = \
nets.max_pool(input, ksize, strides, padding, data_format)
        max_pool3d(input, ksize, strides, padding, data_format=NDHWC) = \
nets.max_pool(input, ksize, strides, padding, data_format)
        avg_pool(input, ksize, strides, padding, data_format) = \
nets.avg_pool(input, ksize, strides, padding, data_format)
        depth_to_space(input, block_size) = nets.depth_to_space(input, block_size)
        space_to_depth(input, block_size) = nets.space_to_depth(input, block_size)
        weighted_cross_entropy_with_logits(labels, logits, pos_weight) = \
nets.weighted_cross_entropy_with_logits(labels, logits, pos_weight)
        conv2d(input, filters, strides, padding, data_format, dilations) = \
nets.convolution(input, filters, strides, padding, data_format, dilations)
        depthwise_conv2d(input, filter, strides, padding, data_format, dilations) = \
nets.depthwise_conv2d(input, filter, strides, padding, data_format, dilations)
        dropout(x, rate, noise_shape, seed) = \
random.dropout(inputs, rate, noise_shape, seed)
        compute_average_loss(per_example_loss, sample_weight, global_batch_size) = \
nets.compute_average_loss(per_example_loss, sample_weight, global_batch_size)
        conv3d(input, filters, strides, padding, data_format, dilations) = \
nets.convolution(input, filters, strides, padding, data_format, dilations)
        crelu(features, axis) = nets.crelu(features, axis)
        ctc_loss(labels, logits, label_length, logit_length, logits_time_major, \
blank_index) = nets.ctc_loss(labels, logits, label_length, logit_length, \
logits_time_major, blank_index)
        ctc_greedy_decoder(inputs, sequence_length, merge_repeated, blank_index) = \
nets.ctc_greedy_decoder(inputs, sequence_length, merge_repeated, blank_index)
        ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths) = \
nets.ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths)
        local_response_normalization(input, depth_radius, bias, alpha, beta) = \
nets.local_response_normalization(input, depth_radius, bias, alpha, beta)
        log_poisson_loss(targets, log_input, compute_full_loss) = \
nets.log_poisson_loss(targets, log_input, compute_full_loss)
        lrn(input, depth_radius, bias, alpha, beta) = \
nets.local_response_normalization(input, depth_radius, bias, alpha, beta)
        scale_regularization_loss(regularization_loss) = \
nets.scale_regularization_loss(regularization_loss)
        separable_conv2d(input, depthwise_filter, pointwise_filter, strides, padding, \
data_format, dilations) = nets.separable_conv2d(input, depthwise_filter, \
pointwise_filter, strides, padding, data_format, dilations)
        zero_fraction(value) = reductions.zero_fraction(value)
        elu(features) = elu(x)
        embedding_lookup(params, ids) = nets.embedding_lookup(params, ids)
        gelu(features, approximate=False) = gelu(x, approximate)
        in_top_k(targets, predictions, k) = in_top_k(targets, predictions, k)
        l2_loss(t) = nets.l2_loss(t)
        l2_normalize(x, axis, epsilon) = nets.l2_normalize(x, axis, epsilon)
        leaky_relu(features, alpha=0.2) = leaky_relu(x, negative_slope)
        log_softmax(logits, axis=-1) = log_softmax(x, axis)
        max_pool2d(input, ksize, strides, padding, data_format) = \
nets.max_pool(input, ksize, strides, padding, data_format)
        max_pool(input, ksize, strides, padding, data_format) = \
nets.max_pool(input, ksize, strides, padding, data_format)
        moments(x, axes, keepdims) = moments(x, axes, keepdims)
        relu(features) = relu(x)
        relu6(features) = relu6(x)
        selu(features) = selu(x)
        sigmoid(x) = sigmoid(x)
        sigmoid_cross_entropy_with_logits(labels, logits) = \
nets.sigmoid_cross_entropy_with_logits(labels, logits)
        silu(features, beta) = nets.silu(features, beta)
        softmax(logits, axis=-1) = softmax(x, axis)
        softmax_cross_entropy_with_logits(labels, logits, axis) = \
nets.softmax_cross_entropy_with_logits(labels, logits, axis)
        softplus(features) = softplus(x)
        softsign(features) = softsign(x)
        sparse_softmax_cross_entropy_with_logits(labels, logits) = \
nets.sparse_softmax_cross_entropy_with_logits(labels, logits)
        swish(features, beta) = nets.silu(features, beta)
        tanh(x) = tanh(x)
        top_k(input, k, sorted) = arrays.top_k(input, k, sorted)
        """,
    ),
    (
        "random",
        """
        categorical(logits, num_samples, dtype=int64, seed) = \
random.categorical(logits, num_samples, dtype, seed)
        normal(shape, mean, stddev, dtype=float32, seed) = \
random.normal(shape, mean, stddev, dtype, seed)
        gamma(shape, alpha, beta, dtype=float32, seed) = \
draws.gamma(shape, alpha, beta, dtype, seed)
        set_seed(seed) = host.set_seed(seed)
        stateless_normal(shape, seed, mean, stddev, dtype) = \
draws.stateless_normal(shape, seed, mean, stddev, dtype)
        stateless_uniform(shape, seed, minval, maxval, dtype) = \
draws.stateless_uniform(shape, seed, minval, maxval, dtype)
        poisson(shape, lam, dtype, seed) = draws.poisson(shape, lam, dtype, seed)
        shuffle(value, seed) = random.shuffle(x, seed)
        truncated_normal(shape, mean, stddev, dtype=float32, seed) = \
random.truncated_normal(shape, mean, stddev, dtype, seed)
        uniform(shape, minval, maxval, dtype, seed) = \
draws.uniform(shape, minval, maxval, dtype, seed)
        """,
    ),
    (
        "image",
        """
        adjust_gamma(image, gamma, gain) = boxes.adjust_gamma(image, gamma, gain)
        adjust_jpeg_quality(image, jpeg_quality) = \
boxes.adjust_jpeg_quality(image, jpeg_quality)
        combined_non_max_suppression(boxes, scores, max_output_size_per_class, \
max_total_size, iou_threshold, score_threshold, pad_per_class, clip_boxes) = \
boxes.combined_non_max_suppression(boxes, scores, max_output_size_per_class, \
max_total_size, iou_threshold, score_threshold, pad_per_class, clip_boxes)
        crop_and_resize(image, boxes, box_indices, crop_size, method, \
extrapolation_value) = boxes.crop_and_resize(image, boxes, box_indices, crop_size, \
method, extrapolation_value)
        draw_bounding_boxes(images, boxes, colors) = \
boxes.draw_bounding_boxes(images, boxes, colors)
        image_gradients(image) = boxes.image_gradients(image)
        non_max_suppression(boxes, scores, max_output_size, iou_threshold, \
score_threshold) = boxes.non_max_suppression(boxes, scores, max_output_size, \
iou_threshold, score_threshold)
        random_jpeg_quality(image, min_jpeg_quality, max_jpeg_quality, seed) = \
boxes.random_jpeg_quality(image, min_jpeg_quality, max_jpeg_quality, seed)
        sobel_edges(image) = boxes.sobel_edges(image)
        transpose(image) = boxes.transpose(image)
        adjust_brightness(image, delta) = pictures.adjust_brightness(image, delta)
        adjust_contrast(images, contrast_factor) = \
pictures.adjust_contrast(images, contrast_factor)
        central_crop(image, central_fraction) = \
pictures.central_crop(image, central_fraction)
        adjust_hue(image, delta) = pictures.adjust_hue(image, delta)
        adjust_saturation(image, saturation_factor) = \
pictures.adjust_saturation(image, saturation_factor)
        extract_patches(images, sizes, strides, rates, padding) = \
pictures.extract_patches(images, sizes, strides, rates, padding)
        hsv_to_rgb(images) = pictures.hsv_to_rgb(images)
        pad_to_bounding_box(image, offset_height, offset_width, target_height, \
target_width) = pictures.pad_to_bounding_box(image, offset_height, offset_width, \
target_height, target_width)
        psnr(a, b, max_val) = pictures.psnr(a, b, max_val)
        random_hue(image, max_delta, seed) = \
pictures.random_hue(image, max_delta, seed)
        random_saturation(image, lower, upper, seed) = \
pictures.random_saturation(image, lower, upper, seed)
        resize_with_crop_or_pad(image, target_height, target_width) = \
pictures.resize_with_crop_or_pad(image, target_height, target_width)
        resize_with_pad(image, target_height, target_width, method, antialias) = \
pictures.resize_with_pad(image, target_height, target_width, method, antialias)
        rgb_to_hsv(images) = pictures.rgb_to_hsv(images)
        rgb_to_yuv(images) = pictures.rgb_to_yuv(images)
        yuv_to_rgb(images) = pictures.yuv_to_rgb(images)
        ssim(img1, img2, max_val, filter_size, filter_sigma, k1, k2) = \
pictures.ssim(img1, img2, max_val, filter_size, filter_sigma, k1, k2)
        total_variation(images) = pictures.total_variation(images)
        convert_image_dtype(image, dtype, saturate) = \
pictures.convert_image_dtype(image, dtype, saturate)
        crop_to_bounding_box(image, offset_height, offset_width, target_height, \
target_width) = pictures.crop_to_bounding_box(image, offset_height, offset_width, \
target_height, target_width)
        decode_image(contents, channels, dtype, expand_animations) = \
encodings.decode_image(contents, channels, dtype, expand_animations)
        flip_left_right(image) = pictures.flip_left_right(image)
        flip_up_down(image) = pictures.flip_up_down(image)
        grayscale_to_rgb(images) = pictures.grayscale_to_rgb(images)
        per_image_standardization(image) = pictures.per_image_standardization(image)
        random_brightness(image, max_delta, seed) = \
pictures.random_brightness(image, max_delta, seed)
        random_contrast(image, lower, upper, seed) = \
pictures.random_contrast(image, lower, upper, seed)
        random_crop(value, size, seed) = pictures.random_crop(value, size, seed)
        random_flip_left_right(image, seed) = \
pictures.random_flip_left_right(image, seed)
        random_flip_up_down(image, seed) = pictures.random_flip_up_down(image, seed)
        resize(images, size, method, preserve_aspect_ratio, antialias) = \
pictures.resize(images, size, method, preserve_aspect_ratio, antialias)
        rgb_to_grayscale(images) = pictures.rgb_to_grayscale(images)
        rot90(image, k) = pictures.rot90(image, k)
        """,
    ),
    (
        "io image",
        """
        decode_jpeg(contents, channels) = encodings.decode_image(contents, channels)
        decode_png(contents, channels, dtype) = \
encodings.decode_image(contents, channels, dtype)
        encode_jpeg(image, format, quality) = \
encodings.encode_jpeg(image, format, quality)
        encode_png(image, compression) = encodings.encode_png(image, compression)
        """,
    ),
    (
        "io",
        """
        decode_bmp(contents, channels) = encodings.decode_image(contents, channels)
        decode_image(contents, channels, dtype, expand_animations) = \
encodings.decode_image(contents, channels, dtype, expand_animations)
        decode_csv(records, record_defaults, field_delim, use_quote_delim, na_value, \
select_cols) = encodings.decode_csv(records, record_defaults, field_delim, \
use_quote_delim, na_value, select_cols)
        decode_raw(input_bytes, out_type) = encodings.decode_raw(input_bytes, out_type)
        matching_files(pattern) = gfile.matching_files(pattern)
        read_file(filename) = gfile.read_file(filename)
        write_file(filename, contents) = gfile.write_file(filename, contents)
        """,
    ),
    (
        "strings",
        """
        as_string(input) = texts.as_string(input)
        join(inputs, separator) = texts.join_texts(inputs, separator)
        length(input, unit) = texts.length(input, unit)
        lower(input) = texts.lower(input)
        reduce_join(inputs, axis, separator) = \
texts.reduce_join(inputs, axis, separator)
        split(input, sep) = texts.split_texts(input, sep)
        unicode_split(input, input_encoding) = \
texts.unicode_split(input, input_encoding)
        regex_replace(input, pattern, rewrite, replace_global) = \
texts.regex_replace(input, pattern, rewrite, replace_global)
        strip(input) = texts.strip(input)
        substr(input, pos, len) = texts.substr(input, pos, len)
        to_number(input, out_type) = texts.to_number(input, out_type)
        upper(input) = texts.upper(input)
        bytes_split(input) = texts.bytes_split(input)
        format(template, inputs, placeholder) = \
texts.format_texts(template, inputs, placeholder)
        unicode_decode(input, input_encoding) = \
texts.unicode_decode(input, input_encoding)
        unicode_encode(input, output_encoding) = \
texts.unicode_encode(input, output_encoding)
        ngrams(data, ngram_width, separator) = \
texts.ngrams(data, ngram_width, separator)
        regex_full_match(input, pattern) = texts.regex_full_match(input, pattern)
        to_hash_bucket_fast(input, num_buckets) = \
texts.to_hash_bucket_fast(input, num_buckets)
        """,
    ),
    (
        "debugging",
        """
        assert_all_finite(x, message) = checks.check_numerics(x, message)
        assert_equal(x, y, message) = checks.assert_equal(x, y, message)
        assert_greater(x, y, message) = checks.assert_greater(x, y, message)
        assert_greater_equal(x, y, message) = checks.assert_greater_equal(x, y, message)
        assert_less(x, y, message) = checks.assert_less(x, y, message)
        assert_less_equal(x, y, message) = checks.assert_less_equal(x, y, message)
        assert_integer(x, message) = checks.assert_integer(x, message)
        assert_negative(x, message) = checks.assert_negative(x, message)
        assert_non_positive(x, message) = checks.assert_non_positive(x, message)
        assert_none_equal(x, y, message) = checks.assert_none_equal(x, y, message)
        assert_rank_at_least(x, rank, message) = \
checks.assert_rank_at_least(x, rank, message)
        assert_rank_in(x, ranks, message) = checks.assert_rank_in(x, ranks, message)
        assert_scalar(tensor, message) = checks.assert_scalar(tensor, message)
        assert_shapes(shapes, data, summarize, message) = \
checks.assert_shapes(shapes, data, summarize, message)
        assert_type(tensor, tf_type, message) = \
checks.assert_type(tensor, tf_type, message)
        assert_near(x, y, rtol, atol, message) = \
checks.assert_near(x, y, rtol, atol, message)
        assert_non_negative(x, message) = checks.assert_non_negative(x, message)
        assert_positive(x, message) = checks.assert_positive(x, message)
        assert_rank(x, rank, message) = checks.assert_rank(x, rank, message)
        check_numerics(tensor, message) = checks.check_numerics(tensor, message)
        """,
    ),
    (
        "bitwise",
        """
        bitwise_and(x, y) = bitwise_and(x, y)
        bitwise_or(x, y) = bitwise_or(x, y)
        bitwise_xor(x, y) = bitwise_xor(x, y)
        invert(x) = bitwise_not(x)
        left_shift(x, y) = bitwise_left_shift(x, y)
        right_shift(x, y) = bitwise_right_shift(x, y)
        """,
    ),
    (
        "sparse",
        """
        to_dense(sp_input, default_value) = arrays.to_dense(sp_input, default_value)
        """,
    ),
    (
        "signal",
        """
        dct(input, type, norm) = signals.dct(input, type, norm)
        fft(input) = signals.fft(input)
        fft2d(input) = signals.fft2d(input)
        fftshift(x, axes) = signals.fftshift(input, axes)
        frame(signal, frame_length, frame_step, pad_end, pad_value, axis) = \
signals.frame(signal, frame_length, frame_step, pad_end, pad_value, axis)
        hamming_window(window_length, periodic, dtype) = \
signals.hamming_window(window_length, periodic, dtype)
        hann_window(window_length, periodic, dtype) = \
signals.hann_window(window_length, periodic, dtype)
        ifft(input) = signals.ifft(input)
        ifft2d(input) = signals.ifft2d(input)
        ifftshift(x, axes) = signals.ifftshift(input, axes)
        irfft(input_tensor, fft_length) = signals.irfft(input_tensor, fft_length)
        linear_to_mel_weight_matrix(num_mel_bins, num_spectrogram_bins, sample_rate, \
lower_edge_hertz, upper_edge_hertz, dtype) = \
signals.linear_to_mel_weight_matrix(num_mel_bins, num_spectrogram_bins, sample_rate, \
lower_edge_hertz, upper_edge_hertz, dtype)
        mfccs_from_log_mel_spectrograms(log_mel_spectrograms) = \
signals.mfccs_from_log_mel_spectrograms(log_mel_spectrograms)
        rfft(input_tensor, fft_length) = signals.rfft(input_tensor, fft_length)
        stft(signals, frame_length, frame_step, fft_length, window_fn, pad_end) = \
signals.stft(signals, frame_length, frame_step, fft_length, window_fn, pad_end)
        """,
    ),
    (
        "audio",
        """
        decode_wav(contents, desired_channels, desired_samples) = \
encodings.decode_wav(contents, desired_channels, desired_samples)
        encode_wav(audio, sample_rate) = encodings.encode_wav(audio, sample_rate)
        """,
    ),
)

# What TensorFlow 1 called some of them, in the losses and lambdas of old scripts.
OLD_FUNCTIONS = {
    **{
        name: f"math.{name}"
        for name in (
            "ceil", "digamma", "erf", "erfc", "is_finite", "is_inf", "is_nan",
            "lgamma", "log", "log1p", "log_sigmoid", "mod", "reciprocal", "rsqrt",
            "segment_max", "segment_mean", "segment_sum", "squared_difference",
            "unsorted_segment_max", "unsorted_segment_sum",
        )
    },
    **{
        f"to_{name}": f"compat.v1.to_{name}"
        for name in ("double", "float", "int32", "int64")
    },
    **{
        f"random_{name}": f"random.{name}"
        for name in ("gamma", "normal", "shuffle", "uniform")
    },
    **{f"matrix_{name}": f"linalg.{name}" for name in ("band_part", "diag_part")},
    "arg_max": "argmax",
    "arg_min": "argmin",
    "div": "math.divide",
    "extract_image_patches": "image.extract_patches",
    "matrix_determinant": "linalg.det",
    "matrix_inverse": "linalg.inv",
    "truncated_normal": "random.truncated_normal",
}  # fmt: skip
OLD_ARGUMENTS = {
    "dim": "axis",
    "dimension": "axis",
    "keep_dims": "keepdims",
    "ksizes": "sizes",
    "reduction_indices": "axis",
}
# `tf.losses` is `tf.keras.losses`, and so on.
KERAS_MODULES = ("initializers", "losses", "metrics", "optimizers")

# Why something is not there, by the beginning of its name, and the way out.
REASONS = {
    "compat": "TensorFlow 1 with its sessions and graphs is not run. Write the "
    "model with Keras layers, and the loop with `fit` or `tf.GradientTape`.",
    "py_func": "steps are compiled, and call no Python. Write it with `keras.ops`; a "
    "score of whole epochs is computed in a callback.",
    "placeholder": "TensorFlow 1 with its sessions and graphs is not run. Use "
    "`keras.Input`.",
    "contrib": "it went with TensorFlow 1. Write the model with Keras layers.",
    "gradients": "it worked on graphs of TensorFlow 1. Use `tf.GradientTape`.",
    "experimental.numpy": "use `keras.ops`, which has NumPy's functions.",
    "experimental": "use `keras.ops`, which has NumPy's functions.",
    "train.Example": "TFRecord files are not written. Save the data as NumPy arrays.",
    "train.BytesList": "TFRecord files are not written. Save the data as NumPy arrays.",
    "train.FloatList": "TFRecord files are not written. Save the data as NumPy arrays.",
    "train.Int64List": "TFRecord files are not written. Save the data as NumPy arrays.",
    "train.Feature": "TFRecord files are not written. Save the data as NumPy arrays.",
    "estimator": "estimators are gone from TensorFlow itself. Use a Keras model.",
    "feature_column": "feature columns are gone from Keras. Use its preprocessing "
    "layers: `Normalization`, `StringLookup`, `CategoryEncoding`.",
    "distribute": "one machine with one device trains here. Leave the strategy and its "
    "scope out.",
    "tpu": "one machine with one device trains here, a CPU or a GPU.",
    "saved_model": "save with `model.save('model.keras')`, which Keras reads, too.",
    "lite": "models are not converted. Save them in Keras (`.keras`).",
    "summary": "use the callback `keras.callbacks.TensorBoard`, or `CSVLogger`.",
    "RaggedTensor": "arrays here are regular. Pad the rows to one length "
    "(`keras.utils.pad_sequences`, `padded_batch`), with a `Masking` layer behind.",
    "ragged": "arrays here are regular. Pad the rows to one length "
    "(`keras.utils.pad_sequences`, `padded_batch`), with a `Masking` layer behind.",
    "sparse": "tensors here are dense. `fit` takes rows of `scipy.sparse`.",
    "io.parse": "TFRecord files are not read. Save the data as NumPy arrays.",
    "io.TFRecord": "TFRecord files are not read. Save the data as NumPy arrays.",
    "data.TFRecordDataset": "TFRecord files are not read. Save the data as NumPy "
    "arrays, and use `from_tensor_slices`.",
    "lookup": "use the layers `StringLookup` and `IntegerLookup`.",
    "raw_ops": "use the public function of the same meaning, or `keras.ops`.",
    "python": "that is inside of TensorFlow. Use the public name.",
}
ANYTHING_ELSE = (
    "of TensorFlow, only what Keras scripts use most is here, on Ganglion's ops. Use "
    "`keras.ops` or NumPy instead."
)

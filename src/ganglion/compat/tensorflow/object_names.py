"""TensorFlow's classes and other objects that are passed on as they are.

`namespaces.py` looks them up here, after the functions of `names.py`.
"""

from __future__ import annotations

# Our module ("" for the package itself): names of TensorFlow, behind `=` ours if it is
# another one than the end of TensorFlow's.
_OF_MODULE = {
    "": "GradientTape",
    "initializers": """
        constant_initializer=Constant ones_initializer=Ones
        random_normal_initializer=RandomNormal random_uniform_initializer=RandomUniform
        zeros_initializer=Zeros
    """,
    "ops": "custom_gradient",
    "training.functions": """
        config.run_functions_eagerly config.functions_run_eagerly
        config.experimental_run_functions_eagerly=run_functions_eagerly
    """,
    "tree": """
        nest.map_structure nest.pack_sequence_as nest.assert_same_structure nest.flatten
        nest.is_nested
    """,
    "compat.tensorflow.averages": "train.ExponentialMovingAverage",
    "compat.tensorflow.boxes": "image.ResizeMethod",
    "compat.tensorflow.checkpoints": """
        train.Checkpoint train.CheckpointManager train.latest_checkpoint
    """,
    "compat.tensorflow.complexes": "dtypes.cast",
    "compat.tensorflow.data.dataset": """
        data.AUTOTUNE data.Dataset data.INFINITE_CARDINALITY data.Options
        data.UNKNOWN_CARDINALITY data.experimental.AUTOTUNE
        data.experimental.INFINITE_CARDINALITY data.experimental.UNKNOWN_CARDINALITY
    """,
    "compat.tensorflow.data.experimental": """
        data.experimental.AutoShardPolicy data.experimental.Counter
        data.experimental.assert_cardinality data.experimental.bucket_by_sequence_length
        data.experimental.choose_from_datasets data.experimental.enumerate_dataset
        data.experimental.get_single_element data.experimental.group_by_window
        data.experimental.ignore_errors data.experimental.load
        data.experimental.map_and_batch data.experimental.parallel_interleave
        data.experimental.prefetch_to_device data.experimental.rejection_resample
        data.experimental.sample_from_datasets data.experimental.save
        data.experimental.scan data.experimental.shuffle_and_repeat
        data.experimental.take_while data.experimental.unbatch data.experimental.unique
    """,
    "compat.tensorflow.data.text_files": """
        data.TextLineDataset data.experimental.make_csv_dataset
    """,
    "compat.tensorflow.dtypes": "TensorSpec dtypes.as_dtype DType as_dtype",
    "compat.tensorflow.generators": """
        random.Generator random.experimental.Generator random.get_global_generator
        random.experimental.get_global_generator random.experimental.stateless_split
        random.log_uniform_candidate_sampler random.experimental.stateless_fold_in
        image.stateless_random_brightness image.stateless_random_contrast
        image.stateless_random_crop image.stateless_random_flip_left_right
        image.stateless_random_flip_up_down image.stateless_random_hue
        image.stateless_random_saturation
        random.split=stateless_split random.fold_in=stateless_fold_in
    """,
    "compat.tensorflow.checks": "debugging.Assert=assert_true",
    "compat.tensorflow.devices": """
        config.experimental.set_memory_growth=as_needed
        config.threading.set_inter_op_parallelism_threads=one_op_at_a_time
        config.threading.set_intra_op_parallelism_threads=set_threads
        config.experimental.enable_op_determinism=always_deterministic
        config.experimental.list_physical_devices=devices
        config.list_logical_devices=devices config.list_physical_devices=devices
        test.is_built_with_cuda=has_gpu test.is_gpu_available=has_gpu
        test.is_built_with_gpu_support=has_gpu
    """,
    "compat.tensorflow.encodings": """
        compat.as_bytes compat.as_text compat.as_str=as_text compat.as_str_any=as_text
    """,
    "compat.tensorflow.gfile": """
        io.gfile.GFile io.gfile.exists io.gfile.isdir io.gfile.listdir io.gfile.makedirs
        io.gfile.copy io.gfile.mkdir io.gfile.remove io.gfile.rename io.gfile.rmtree
        io.gfile.walk io.gfile.glob=glob_files io.gfile.join=join_paths
    """,
    "compat.tensorflow.host": """
        get_logger compat.v1.set_random_seed=set_seed set_random_seed=set_seed
    """,
    "compat.tensorflow.objects": """
        AggregationMethod Module Tensor TensorShape UnconnectedGradients Variable
        VariableAggregation data.experimental.cardinality errors.InvalidArgumentError
        errors.AbortedError errors.FailedPreconditionError errors.NotFoundError
        errors.OpError errors.ResourceExhaustedError errors.UnavailableError
        errors.UnimplementedError errors.OutOfRangeError executing_eagerly function
        newaxis IndexedSlices SparseTensor TensorArray
        autograph.experimental.do_not_convert=unchanged
        device=labelled name_scope=labelled control_dependencies=labelled
        init_scope=labelled
    """,
    "compat.tensorflow.old_optimizers": """
        train.AdadeltaOptimizer=adadelta compat.v1.train.AdadeltaOptimizer=adadelta
        train.AdagradOptimizer=adagrad compat.v1.train.AdagradOptimizer=adagrad
        train.AdamOptimizer=adam compat.v1.train.AdamOptimizer=adam
        train.GradientDescentOptimizer=gradient_descent
        compat.v1.train.GradientDescentOptimizer=gradient_descent
        train.MomentumOptimizer=momentum compat.v1.train.MomentumOptimizer=momentum
        train.RMSPropOptimizer=rms_prop compat.v1.train.RMSPropOptimizer=rms_prop
    """,
    "compat.tensorflow.runtime": """
        config.experimental.set_visible_devices config.get_visible_devices
        config.set_visible_devices test.gpu_device_name Session Graph get_default_graph
        compat.v1.Graph compat.v1.get_default_graph
        python.client.device_lib.list_local_devices logging.DEBUG logging.INFO
        logging.WARN logging.ERROR logging.FATAL compat.v1.Session
        compat.v1.logging.DEBUG compat.v1.logging.INFO compat.v1.logging.WARN
        compat.v1.logging.ERROR compat.v1.logging.FATAL
        InteractiveSession=Session compat.v1.InteractiveSession=Session
        autograph.set_verbosity=hint debugging.set_log_device_placement=hint
        debugging.disable_traceback_filtering=hint
        data.experimental.enable_debug_mode=hint
        config.experimental.enable_tensor_float_32_execution=hint
        config.experimental.set_virtual_device_configuration=hint
        config.optimizer.set_experimental_options=hint config.optimizer.set_jit=hint
        config.set_logical_device_configuration=hint
        config.set_soft_device_placement=hint reset_default_graph=hint
        enable_eager_execution=hint disable_eager_execution=hint
        logging.set_verbosity=hint compat.v1.enable_eager_execution=hint
        compat.v1.enable_v2_behavior=hint compat.v1.enable_v2_tensorshape=hint
        compat.v1.disable_eager_execution=hint compat.v1.disable_v2_behavior=hint
        compat.v1.reset_default_graph=hint compat.v1.logging.set_verbosity=hint
        config.LogicalDeviceConfiguration=Hints
        config.experimental.VirtualDeviceConfiguration=Hints ConfigProto=Hints
        GPUOptions=Hints compat.v1.ConfigProto=Hints compat.v1.GPUOptions=Hints
        global_variables_initializer=Initializer initialize_all_variables=Initializer
        local_variables_initializer=Initializer tables_initializer=Initializer
        compat.v1.global_variables_initializer=Initializer
        compat.v1.initialize_all_variables=Initializer
        compat.v1.local_variables_initializer=Initializer
        compat.v1.tables_initializer=Initializer
    """,
    "compat.tensorflow.strategies": """
        distribute.MirroredStrategy distribute.OneDeviceStrategy distribute.Strategy
        distribute.ReduceOp distribute.get_strategy distribute.has_strategy
        distribute.cluster_resolver.TPUClusterResolver
    """,
    "compat.tensorflow.summaries": """
        summary.audio summary.create_file_writer summary.histogram summary.image
        summary.scalar summary.text
    """,
    "compat.tensorflow.tables": """
        lookup.KeyValueTensorInitializer lookup.StaticHashTable
        lookup.StaticVocabularyTable lookup.TextFileIndex lookup.TextFileInitializer
    """,
}


def _objects() -> dict[str, str]:
    """Return where an object of TensorFlow is in Ganglion, by its name behind `tf.`."""
    places = {}
    for module, words in _OF_MODULE.items():
        for word in words.split():
            name, _, ours = word.partition("=")
            attribute = ours or name.rpartition(".")[2]
            places[name] = f"{module}.{attribute}".lstrip(".")
    return places


OBJECTS = _objects()

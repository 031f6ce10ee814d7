/* How a compiled coroutine throws an error into what it awaits. Included by what mypyc generates; see setup.py.

   mypyc calls throw(type, value, traceback), which Python deprecates since 3.12. Where warnings are errors, that call
   would raise a DeprecationWarning in the coroutine that awaits, and what it awaits would not learn of its
   cancellation. */

/* Do what CPy_YieldFromErrorHandle does, but throw the error alone. Return 0 if the awaited object yields, and 1 if it
   returns, what it does in `outcome`; 2 if it raises. */
static int deadlined_throw_into(PyObject *awaited, PyObject **outcome)
{
    PyObject *error = CPy_ExcState()->exc_value;
    PyObject *throw;

    if (PyErr_GivenExceptionMatches(error, PyExc_GeneratorExit))
        return CPy_YieldFromErrorHandle(awaited, outcome);
    throw = PyObject_GetAttr(awaited, mypyc_interned_str.throw_);
    if (throw == NULL) {
        /* an iterator that takes no errors: mypyc raises it here */
        PyErr_Clear();
        return CPy_YieldFromErrorHandle(awaited, outcome);
    }
    Py_INCREF(error);
    *outcome = PyObject_CallOneArg(throw, error);
    Py_DECREF(error);
    Py_DECREF(throw);
    if (*outcome != NULL)
        return 0;
    *outcome = CPy_FetchStopIterationValue();
    return *outcome != NULL ? 1 : 2;
}

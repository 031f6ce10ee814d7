/* The docstring and the signature of a compiled async method. Included by what mypyc generates; see setup.py.

   mypyc keeps both in the C structure of the function, as "name($self, argument)\n--\n\ndocstring", and shows neither:
   the docstring is None, and a signature that is computed from the function's empty code object has no parameters. */

static const char *deadlined_internal_doc(PyObject *op)
{
    return ((PyCFunctionObject *)op)->m_ml->ml_doc;
}

static PyObject *deadlined_get_doc(PyObject *op, void *context)
{
    const char *doc = deadlined_internal_doc(op);
    const char *end = doc == NULL ? NULL : strstr(doc, "\n--\n\n");

    (void)context;
    if (end == NULL || end[5] == '\0')
        Py_RETURN_NONE;
    return PyUnicode_FromString(end + 5);
}

/* inspect.signature() of "lambda self, argument: None" */
static PyObject *deadlined_get_signature(PyObject *op, void *context)
{
    const char *doc = deadlined_internal_doc(op);
    const char *begin = doc == NULL ? NULL : strchr(doc, '(');
    const char *end = doc == NULL ? NULL : strstr(doc, ")\n--\n\n");
    PyObject *parameters = NULL, *source = NULL, *globals = NULL, *function = NULL, *inspect = NULL, *signature = NULL;

    (void)context;
    if (begin == NULL || end == NULL || end < begin)
        Py_RETURN_NONE;
    begin += begin[1] == '$' ? 2 : 1;
    parameters = PyUnicode_FromStringAndSize(begin, end - begin);
    if (parameters != NULL)
        source = PyUnicode_FromFormat("lambda %U: None", parameters);
    globals = PyDict_New();
    if (source != NULL && globals != NULL)
        function = PyRun_String(PyUnicode_AsUTF8(source), Py_eval_input, globals, globals);
    if (function == NULL) {
        /* a default that is no Python */
        PyErr_Clear();
        signature = Py_NewRef(Py_None);
    }
    else
        inspect = PyImport_ImportModule("inspect");
    if (inspect != NULL)
        signature = PyObject_CallMethod(inspect, "signature", "O", function);
    Py_XDECREF(parameters);
    Py_XDECREF(source);
    Py_XDECREF(globals);
    Py_XDECREF(function);
    Py_XDECREF(inspect);
    return signature;
}

static PyGetSetDef deadlined_getsets[] = {
    {"__doc__", deadlined_get_doc, NULL, NULL, NULL},
    {"__signature__", deadlined_get_signature, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* CPyFunction_New, whose type has both attributes from the first function on */
static PyObject *deadlined_function(PyObject *module, const char *filename, const char *name, PyCFunction function,
                                    int function_flags, const char *doc, int line, int code_flags, bool has_self)
{
    PyObject *made = CPyFunction_New(module, filename, name, function, function_flags, doc, line, code_flags, has_self);
    PyTypeObject *type = made == NULL ? NULL : Py_TYPE(made);
    PyGetSetDef *getset;

    if (type == NULL || PyDict_GetItemString(type->tp_dict, "__signature__") != NULL)
        return made;
    for (getset = deadlined_getsets; getset->name != NULL; getset++) {
        PyObject *descriptor = PyDescr_NewGetSet(type, getset);
        if (descriptor == NULL || PyDict_SetItemString(type->tp_dict, getset->name, descriptor) < 0)
            PyErr_Clear();
        Py_XDECREF(descriptor);
    }
    PyType_Modified(type);
    return made;
}
